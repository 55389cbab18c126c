"""Official scores of a test set from its instances and what a model says of each."""

from typing import Any, Callable, Dict, List

from allennlp.data import Instance

from allennlp_elmo_plugin.evaluation import scorers
from allennlp_elmo_plugin.evaluation.scorers import Scores

Outputs = List[Dict[str, Any]]


def _score_tags(instances: List[Instance], outputs: Outputs) -> Scores:
    gold = [list(instance["tags"].labels) for instance in instances]  # type: ignore[attr-defined]
    return scorers.conlleval(gold, [output["tags"] for output in outputs])


def _score_srl(instances: List[Instance], outputs: Outputs) -> Scores:
    metadata = [instance["metadata"].metadata for instance in instances]  # type: ignore[attr-defined]
    return scorers.srl_eval(
        [each["words"] for each in metadata],
        [each["verb_index"] for each in metadata],
        [each["gold_tags"] for each in metadata],
        [output["tags"] for output in outputs],
    )


def _score_coreference(instances: List[Instance], outputs: Outputs) -> Scores:
    metadata = [instance["metadata"].metadata for instance in instances]  # type: ignore[attr-defined]
    return scorers.coreference(
        [each["clusters"] for each in metadata], [output["clusters"] for output in outputs]
    )


def _score_squad(instances: List[Instance], outputs: Outputs) -> Scores:
    metadata = [instance["metadata"].metadata for instance in instances]  # type: ignore[attr-defined]
    return scorers.squad(
        [output["best_span_str"] for output in outputs],
        [each["answer_texts"] for each in metadata],
    )


def _score_labels(instances: List[Instance], outputs: Outputs) -> Scores:
    gold = [instance["label"].label for instance in instances]  # type: ignore[attr-defined]
    return scorers.class_accuracy(gold, [output["label"] for output in outputs])


INSTANCE_SCORERS: Dict[str, Callable[[List[Instance], Outputs], Scores]] = {
    "sst5": _score_labels,
    "ner": _score_tags,
    "chunking": _score_tags,
    "snli": _score_labels,
    "srl": _score_srl,
    "coref": _score_coreference,
    "squad": _score_squad,
}
"""By the kind of task."""
