"""Official scores of a test set, from its instances and a model's outputs for them."""

from typing import Any, Callable, Dict, List

from allennlp.data import Instance

from allennlp_elmo_plugin.evaluation import scorers
from allennlp_elmo_plugin.evaluation.scorers import Scores

Instances = List[Instance]
Outputs = List[Dict[str, Any]]
Scorer = Callable[[Instances, Outputs], Scores]


def _gold(instances: Instances, key: str) -> List[Any]:
    return [instance["metadata"][key] for instance in instances]  # type: ignore[index]


def _predicted(outputs: Outputs, key: str) -> List[Any]:
    return [output[key] for output in outputs]


def _labels(instances: Instances, outputs: Outputs) -> Scores:
    gold = [instance["label"].label for instance in instances]  # type: ignore[attr-defined]
    return scorers.class_accuracy(gold, _predicted(outputs, "label"))


def _tags(instances: Instances, outputs: Outputs) -> Scores:
    gold = [list(instance["tags"].labels) for instance in instances]  # type: ignore[attr-defined]
    return scorers.conlleval(gold, _predicted(outputs, "tags"))


def _roles(instances: Instances, outputs: Outputs) -> Scores:
    words, verbs, gold = (_gold(instances, key) for key in ("words", "verb_index", "gold_tags"))
    return scorers.srl_eval(words, verbs, gold, _predicted(outputs, "tags"))


def _from_metadata(score: Callable[..., Scores], key: str, predicted: str) -> Scorer:
    return lambda instances, outputs: score(_gold(instances, key), _predicted(outputs, predicted))


INSTANCE_SCORERS: Dict[str, Scorer] = {
    "sst5": _labels,
    "ner": _tags,
    "chunking": _tags,
    "snli": _labels,
    "srl": _roles,
    "coref": _from_metadata(scorers.coreference, "clusters", "clusters"),
    "squad": _from_metadata(scorers.squad, "answer_texts", "best_span_str"),
    "imdb": _labels,
    "constituency": _from_metadata(scorers.evalb, "gold_tree", "trees"),
}
"""By the kind of task."""
