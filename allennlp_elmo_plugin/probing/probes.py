"""Classifiers of vectors: a linear one, and the nearest mean vector of a word's senses."""

from collections import Counter
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Type, Union

import numpy

from allennlp_elmo_plugin.probing.labelled_text import Example

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions

_VARIANCE = 1 - 1e-6
"""The share of the variance that is whitened; the rest is rounding."""


class MostFrequentLabel:
    """The baseline without vectors: the most frequent label of a key or, if it is new, of all."""

    def __init__(self, examples: Sequence[Example]) -> None:
        counts: Dict[str, Counter] = {}
        for example in examples:
            counts.setdefault(example.key, Counter())[example.label] += 1
        self.labels = {key: [name for name, _ in counts[key].most_common()] for key in counts}
        """The labels of each key, the most frequent first."""
        self._of_unseen = Counter(example.label for example in examples).most_common(1)[0][0]

    def predict(self, example: Example) -> str:
        return self.labels.get(example.key, [self._of_unseen])[0]


class LinearProbe:
    """
    Logistic regression from the vectors of examples, shape `(n_examples, dim)`, to their labels.

    The vectors are whitened first: many dimensions of an ELMo are nearly the same, with which the
    regression would take thousands of steps.
    """

    def __init__(
        self, vectors: Array, examples: Sequence[Example], baseline: MostFrequentLabel
    ) -> None:
        from sklearn.decomposition import PCA  # slow to import
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        whitening = PCA(_VARIANCE, whiten=True, svd_solver="covariance_eigh")
        self._classifier = make_pipeline(whitening, LogisticRegression(C=0.1, max_iter=5_000))
        self._classifier.fit(vectors, [example.label for example in examples])

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        return list(self._classifier.predict(vectors))


class NearestSense:
    """
    Of the labels of a key, the one whose mean vector in training is nearest by cosine (Peters et
    al. 2018, section 5.3). For a new key, the baseline's label.
    """

    def __init__(
        self, vectors: Array, examples: Sequence[Example], baseline: MostFrequentLabel
    ) -> None:
        self._baseline = baseline
        rows: Dict[Tuple[str, str], List[int]] = {}
        for row, example in enumerate(examples):
            rows.setdefault((example.key, example.label), []).append(row)
        self._senses: Dict[str, Array] = {}
        """By key, the mean vectors, of length 1, in the order of the baseline's labels."""
        for key, labels in baseline.labels.items():
            means = numpy.stack([vectors[rows[key, label]].mean(0) for label in labels])
            lengths = numpy.linalg.norm(means, axis=1, keepdims=True)
            self._senses[key] = means / numpy.maximum(lengths, 1e-12)

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        labels = []
        for vector, example in zip(vectors, examples):
            if example.key in self._senses:
                nearest = int(numpy.argmax(self._senses[example.key] @ vector))
                labels.append(self._baseline.labels[example.key][nearest])
            else:
                labels.append(self._baseline.predict(example))
        return labels


class ProbeTask(NamedTuple):
    """
    A kind of labels, its columns with their default numbers, the probe, and the results of Peters
    et al. (2018) in percent, of LSTM layers by their number and of the baseline.
    """

    label: str
    key: str
    column_names: Tuple[str, ...]
    columns: Tuple[int, ...]
    probe: Type[Union[LinearProbe, NearestSense]]
    paper: Dict[str, float]


TASKS: Dict[str, ProbeTask] = {
    "pos": ProbeTask(
        "tag",
        "word",
        ("word", "tag"),
        (1, 2),
        LinearProbe,
        {"1": 97.3, "2": 96.8},  # table 6
    ),
    "wsd": ProbeTask(
        "sense",
        "lemma",
        ("word", "lemma", "sense"),
        (4, 7, 8),
        NearestSense,
        {"baseline": 65.9, "1": 67.4, "2": 69.0},  # table 5; the baseline is WordNet's first sense
    ),
}
