"""Official scores of a test set, from its instances and a model's outputs for them."""

from typing import Any, Callable, Dict, List

from allennlp.data import Instance

from allennlp_elmo_plugin.evaluation import scorers
from allennlp_elmo_plugin.evaluation.scorers import Scores

Outputs = List[Dict[str, Any]]


def _metadata(instances: List[Instance], key: str) -> List[Any]:
    return [instance["metadata"][key] for instance in instances]  # type: ignore[index]


def _predicted(outputs: Outputs, key: str) -> List[Any]:
    return [output[key] for output in outputs]


def _score_tags(instances: List[Instance], outputs: Outputs) -> Scores:
    gold = [list(instance["tags"].labels) for instance in instances]  # type: ignore[attr-defined]
    return scorers.conlleval(gold, _predicted(outputs, "tags"))


def _score_srl(instances: List[Instance], outputs: Outputs) -> Scores:
    return scorers.srl_eval(
        _metadata(instances, "words"),
        _metadata(instances, "verb_index"),
        _metadata(instances, "gold_tags"),
        _predicted(outputs, "tags"),
    )


def _score_coreference(instances: List[Instance], outputs: Outputs) -> Scores:
    return scorers.coreference(_metadata(instances, "clusters"), _predicted(outputs, "clusters"))


def _score_squad(instances: List[Instance], outputs: Outputs) -> Scores:
    answers = _predicted(outputs, "best_span_str")
    return scorers.squad(answers, _metadata(instances, "answer_texts"))


def _score_labels(instances: List[Instance], outputs: Outputs) -> Scores:
    gold = [instance["label"].label for instance in instances]  # type: ignore[attr-defined]
    return scorers.class_accuracy(gold, _predicted(outputs, "label"))


def _score_trees(instances: List[Instance], outputs: Outputs) -> Scores:
    return scorers.evalb(_metadata(instances, "gold_tree"), _predicted(outputs, "trees"))


INSTANCE_SCORERS: Dict[str, Callable[[List[Instance], Outputs], Scores]] = {
    "sst5": _score_labels,
    "ner": _score_tags,
    "chunking": _score_tags,
    "snli": _score_labels,
    "srl": _score_srl,
    "coref": _score_coreference,
    "squad": _score_squad,
    "imdb": _score_labels,
    "constituency": _score_trees,
}
"""By the kind of task."""
