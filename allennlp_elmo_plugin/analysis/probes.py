"""Classifiers of vectors: a linear one, and the nearest mean vector of a word's senses."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy

from allennlp_elmo_plugin.analysis.labelled_text import Example

_VARIANCE = 1 - 1e-6
"""The share of the variance that is whitened; the rest is rounding."""


def labels_by_key(examples: Sequence[Example]) -> dict[str | None, list[str]]:
    """Return the labels of each key and, under `None`, of all keys, the most frequent first."""
    counts: dict[str | None, Counter] = {None: Counter()}
    for _, key, label in examples:
        counts[None][label] += 1
        counts.setdefault(key, Counter())[label] += 1
    return {key: [label for label, _ in counts[key].most_common()] for key in counts}


class LinearProbe:
    """
    Logistic regression from the vectors of examples, shape `(n_examples, dim)`, to their labels.

    The vectors are whitened first: many dimensions of an ELMo are nearly the same, with which the
    regression would take thousands of steps.
    """

    def __init__(self, vectors: numpy.ndarray, examples: Sequence[Example]) -> None:
        from sklearn.decomposition import PCA  # slow to import
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        whitening = PCA(_VARIANCE, whiten=True, svd_solver="covariance_eigh")
        self._classifier = make_pipeline(whitening, LogisticRegression(C=0.1, max_iter=5_000))
        self._classifier.fit(vectors, [example.label for example in examples])

    def predict(self, vectors: numpy.ndarray, examples: Sequence[Example]) -> list[str]:
        return list(self._classifier.predict(vectors))


class NearestSense:
    """
    Of the labels of a key, the one whose mean vector in training is nearest by cosine (Peters et
    al. 2018, section 5.3). For a new key, the most frequent label of all.
    """

    def __init__(self, vectors: numpy.ndarray, examples: Sequence[Example]) -> None:
        self._labels = labels_by_key(examples)
        rows: dict[tuple[str, str], list[int]] = {}
        for row, (_, key, label) in enumerate(examples):
            rows.setdefault((key, label), []).append(row)
        means = {sense: vectors[rows[sense]].mean(0) for sense in rows}
        self._means = {sense: mean / numpy.linalg.norm(mean) for sense, mean in means.items()}

    def predict(self, vectors: numpy.ndarray, examples: Sequence[Example]) -> list[str]:
        found = []
        for vector, (_, key, _) in zip(vectors, examples):
            labels = self._labels.get(key, self._labels[None])
            nearest = 0
            if key in self._labels:
                nearest = int(numpy.argmax([self._means[key, each] @ vector for each in labels]))
            found.append(labels[nearest])
        return found


class ProbeTask(NamedTuple):
    """
    A kind of labels, the default columns of the word, the key and the label, the probe, and the
    results of Peters et al. (2018) in percent, of LSTM layers by their number and of the baseline.
    """

    label: str
    key: str
    columns: tuple[int, ...]
    probe: type[LinearProbe | NearestSense]
    paper: dict[str, float]


# Of tables 6 and 5. The paper's baseline for senses is the first one in WordNet.
TASKS = {
    "pos": ProbeTask("tag", "word", (1, 2), LinearProbe, {"1": 97.3, "2": 96.8}),
    "wsd": ProbeTask(
        "sense", "lemma", (4, 7, 8), NearestSense, {"baseline": 65.9, "1": 67.4, "2": 69.0}
    ),
}
