"""
The scores of the tasks' official scorers, in percent. AllenNLP's code is used where it counts the
same, but it omits coreference clusters of one mention, and its EVALB is a program in C.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from allennlp.data.dataset_readers.dataset_utils.span_utils import bio_tags_to_spans
from allennlp.training.metrics import EvalbBracketingScorer
from allennlp_models.coref.metrics.conll_coref_scores import Scorer
from allennlp_models.rc.tools.squad import get_metric_score
from allennlp_models.structured_prediction.metrics.srl_eval_scorer import SrlEvalScorer
from allennlp_models.structured_prediction.models.srl import convert_bio_tags_to_conll_format
from nltk import Tree
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import accuracy_score, recall_score

Scores = dict[str, float]
Clusters = list[frozenset]
Documents = Sequence[Sequence[Sequence[Any]]]
"""The clusters of each document; a cluster is a list of mentions, such as `(begin, end)`."""


def _f1(precision: Sequence[float], recall: Sequence[float], suffix: str = "") -> Scores:
    """Return scores from the numerators and denominators; 0 / 0 is 0, as in conlleval."""
    p, r = (100 * top / bottom if bottom else 0.0 for top, bottom in (precision, recall))
    f1 = 2 * p * r / (p + r) if p + r else 0.0
    return {f"precision{suffix}": p, f"recall{suffix}": r, f"f1{suffix}": f1}


def conlleval(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Scores:
    """
    Score chunks like the script conlleval of CoNLL-2000 and CoNLL-2003; tags are BIO, IOB1 or
    BIOUL. Return `precision`, `recall`, `f1`, the same for each type (`f1-LOC`), and `accuracy`.
    """
    tags = [list(map(_to_bio, sentences)) for sentences in (gold, predicted)]
    spans = [
        {(label, n, span) for n, row in enumerate(rows) for label, span in bio_tags_to_spans(row)}
        for rows in tags
    ]
    is_right = [a == b for rows in zip(*tags) for a, b in zip(*rows)]
    scores = {"accuracy": 100 * sum(is_right) / len(is_right) if is_right else 0.0}
    for label in [None, *sorted({span[0] for span in spans[0] | spans[1]})]:
        true, chosen = ({span for span in side if label in (None, span[0])} for side in spans)
        right = len(true & chosen)
        suffix = "" if label is None else f"-{label}"
        scores.update(_f1((right, len(chosen)), (right, len(true)), suffix))
    return scores


def _to_bio(tags: Sequence[str]) -> list[str]:
    return [{"U": "B", "L": "I"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]


def srl_eval(
    verbs: Sequence[int | None], gold: Sequence[list[str]], predicted: Sequence[list[str]]
) -> Scores:
    """
    Score semantic roles (BIO tags) by one run of srl-eval.pl of CoNLL-2005, which doesn't count the
    predicate. Each predicate has a row of tags; its position in the row is in `verbs`. Return
    `precision`, `recall` and `f1` with two decimals, as the script prints them.
    """
    scorer = SrlEvalScorer(ignore_classes=["V"])
    # Any words will do, except "-", which the script reads as no predicate.
    words = [["V"] * len(row) for row in gold]
    tags = [list(map(convert_bio_tags_to_conll_format, rows)) for rows in (predicted, gold)]
    scorer(list(verbs), words, *tags)
    names = {"precision": "precision", "recall": "recall", "f1": "f1-measure"}
    metrics = scorer.get_metric()
    return {name: round(100 * metrics[f"{key}-overall"], 2) for name, key in names.items()}


def coreference(gold: Documents, predicted: Documents) -> Scores:
    """
    Score coreference like CoNLL-2012, with predicted mentions (Pradhan et al. 2014). Clusters
    of one mention count. Return `f1`, the mean of `f1-muc`, `f1-b_cubed` and `f1-ceafe`, and the
    precision and recall of each.
    """
    true, predictions = (
        [[frozenset(map(tuple, cluster)) for cluster in clusters] for clusters in documents]
        for documents in (gold, predicted)
    )
    result: Scores = {}
    for name, metric in (("muc", _muc), ("b_cubed", _b_cubed), ("ceafe", _ceafe)):
        precision = np.sum(list(map(metric, predictions, true)), axis=0)
        recall = np.sum(list(map(metric, true, predictions)), axis=0)
        result.update(_f1(precision, recall, f"-{name}"))
    return {"f1": (result["f1-muc"] + result["f1-b_cubed"] + result["f1-ceafe"]) / 3, **result}


def _muc(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    """Count the links of `clusters` that `others` have too, and all of them."""
    return Scorer.muc(clusters, {mention: other for other in others for mention in other})


def _b_cubed(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    """Sum over the mentions of `clusters` the part of its cluster that `others` join to it too."""
    overlap = sum(
        len(cluster & other) ** 2 / len(cluster) for cluster in clusters for other in others
    )
    return overlap, sum(len(cluster) for cluster in clusters)


def _ceafe(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    """Assign `clusters` to `others` so that the sum of phi4, their similarity, is largest."""
    phi4 = [[Scorer.phi4(cluster, other) for other in others] for cluster in clusters]
    similarity = np.reshape(phi4, (len(clusters), len(others)))
    best = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[best].sum()), len(clusters)


def squad(accepted: Sequence[Sequence[str]], answers: Sequence[str]) -> Scores:
    """Score answers by exact match (`em`) and word F1 (`f1`) against the best accepted answer."""
    scores = [get_metric_score(answer, list(texts)) for answer, texts in zip(answers, accepted)]
    em, f1 = 100 * np.mean(scores, axis=0)
    return {"em": float(em), "f1": float(f1)}


_DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
"""The labels that EVALB's COLLINS.prm deletes: of brackets, and of words with their tags."""


def bracket_counts(gold: Tree, predicted: Tree) -> tuple[int, int, int]:
    """
    Count the brackets of a sentence as EVALB does with COLLINS.prm. Return how many are in both
    trees, in the gold tree and in the predicted one. Words have the tags of the gold tree.
    """
    tags = [tag for _, tag in gold.pos()]
    in_gold, in_predicted = _brackets(gold, tags), _brackets(predicted, tags)
    return (in_gold & in_predicted).total(), in_gold.total(), in_predicted.total()


def _brackets(tree: Tree, tags: Sequence[str]) -> Counter:
    """Count `(label, begin, end)`, where positions count only the words that are not deleted."""
    kept = np.cumsum([0, *(tag not in _DELETED for tag in tags)])
    brackets: Counter = Counter()

    def add(node: Tree, begin: int) -> int:
        end = begin
        for child in node:
            end = add(child, end) if isinstance(child, Tree) else end + 1
        if isinstance(node[0], Tree):
            label = re.split("[-=]", node.label())[0]
            if kept[begin] < kept[end] and label not in _DELETED:
                brackets["ADVP" if label == "PRT" else label, kept[begin], kept[end]] += 1
        return end

    add(tree, 0)
    return brackets


def evalb(gold: Sequence[Tree], predicted: Sequence[Tree]) -> Scores:
    """
    Score trees like the program EVALB with COLLINS.prm. Return `precision`, `recall` and `f1` of
    labelled brackets, and `complete`, the percentage of sentences whose brackets are all right.
    """
    counts = [bracket_counts(*trees) for trees in zip(gold, predicted)]
    right, in_gold, in_predicted = np.sum(counts, axis=0).tolist()
    complete = [len(set(of_sentence)) == 1 for of_sentence in counts]
    scores = _f1((right, in_predicted), (right, in_gold))
    return {**scores, "complete": 100 * sum(complete) / len(counts)}


class BracketingScorer(EvalbBracketingScorer):
    """AllenNLP's `EvalbBracketingScorer` without its program in C."""

    def __call__(self, predicted_trees: Any, gold_trees: Any) -> None:  # type: ignore[override]
        for gold, predicted in zip(gold_trees, predicted_trees):
            right, in_gold, in_predicted = bracket_counts(gold, predicted)
            self._correct_predicted_brackets += right
            self._gold_brackets += in_gold
            self._predicted_brackets += in_predicted


def class_accuracy(gold: Sequence[str], predicted: Sequence[str]) -> Scores:
    """Score labels: `accuracy`, and the part of each gold class that is right (`accuracy-4`)."""
    labels = sorted(set(gold))
    recalls = recall_score(gold, predicted, labels=labels, average=None)
    scores = {f"accuracy-{label}": 100 * float(recall) for label, recall in zip(labels, recalls)}
    return {"accuracy": 100 * float(accuracy_score(gold, predicted)), **scores}
