"""Classifiers of vectors: a linear one, and the nearest mean vector of a word's senses."""

from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Protocol, Sequence, Tuple

import numpy

from allennlp_elmo_plugin.probing.labelled_text import Example

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions

_L2 = 10.0
"""Half of it times the sum of the squared coefficients is added to the sum of the losses."""

_SMALLEST_VARIANCE = 1e-6
"""Relative to the largest one; less is rounding."""


class MostFrequentLabel:
    """
    The baseline without vectors: the label that a key most often has in training, and for a key
    that is not there, the most frequent label of all. Of labels with one frequency, the first one
    in the text.

    # Parameters

    examples : `Sequence[Example]`
        Those of the training data.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        counts: Dict[str, Counter] = {}
        for example in examples:
            counts.setdefault(example.key, Counter())[example.label] += 1
        self.labels = {
            key: [label for label, _ in count.most_common()] for key, count in counts.items()
        }
        """The labels of each key, the most frequent first."""
        self._of_unseen = Counter(example.label for example in examples).most_common(1)[0][0]

    def predict(self, example: Example) -> str:
        """Return the label."""
        return self.labels.get(example.key, [self._of_unseen])[0]


class Probe(Protocol):
    """A classifier that has been trained on vectors."""

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        """Return the label of each vector, shape `(n_examples, dim)`."""


class LinearProbe:
    """
    scikit-learn's logistic regression from the vectors to the labels.

    The vectors are whitened first, by which a linear classifier can tell apart neither more nor
    less. Many dimensions of an ELMo are nearly the same: without it, the regression takes thousands
    of steps, and one that is stopped early shows which layer it is quick with.

    # Parameters

    vectors : `numpy.ndarray`
        The vectors of the training examples, shape `(n_examples, dim)`.
    examples : `Sequence[Example]`
    baseline : `MostFrequentLabel`
        Ignored.
    """

    def __init__(
        self, vectors: Array, examples: Sequence[Example], baseline: MostFrequentLabel
    ) -> None:
        from sklearn.linear_model import LogisticRegression  # slow to import

        self._mean = vectors.mean(0)
        centered = vectors - self._mean
        covariance = (centered.T @ centered).astype("float64") / len(centered)
        variances, axes = numpy.linalg.eigh(covariance)
        variances = numpy.maximum(variances, 1e-30)  # All vectors may be the same.
        kept = variances >= _SMALLEST_VARIANCE * variances[-1]
        self._whitening = (axes[:, kept] / numpy.sqrt(variances[kept])).astype("float32")
        self._classifier = LogisticRegression(C=1 / _L2, max_iter=5_000)
        self._classifier.fit(centered @ self._whitening, [example.label for example in examples])

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        return list(self._classifier.predict((vectors - self._mean) @ self._whitening))


class NearestSense:
    """
    Of the labels of a key, the one whose mean vector in training is nearest by cosine, as in Peters
    et al. (2018), section 5.3. For a key that is not there, the baseline's label.

    # Parameters

    vectors, examples, baseline
        As for `LinearProbe`.
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
        return [self._nearest(vector, example) for vector, example in zip(vectors, examples)]

    def _nearest(self, vector: Array, example: Example) -> str:
        senses = self._senses.get(example.key)
        if senses is None:
            return self._baseline.predict(example)
        return self._baseline.labels[example.key][int(numpy.argmax(senses @ vector))]


class ProbeTask(NamedTuple):
    """
    A kind of labels, and how to predict them.

    # Parameters

    label, key : `str`
        What they are called in tables.
    column_names : `Tuple[str, ...]`
        What the columns are that `--columns` names: of the word, its key (if it isn't the word),
        and its label.
    columns : `Tuple[int, ...]`
        Their default numbers, from 1.
    probe : `Callable`
        Trains a probe on vectors and their examples.
    paper : `Dict[str, float]`
        The results of Peters et al. (2018) in percent: of LSTM layers by their number, `"1"` and
        `"2"`, and of the `"baseline"` if it has one.
    paper_table : `str`
        Where they are from.
    """

    label: str
    key: str
    column_names: Tuple[str, ...]
    columns: Tuple[int, ...]
    probe: Callable[[Array, Sequence[Example], MostFrequentLabel], Probe]
    paper: Dict[str, float]
    paper_table: str


TASKS: Dict[str, ProbeTask] = {
    "pos": ProbeTask(
        "tag",
        "word",
        ("word", "tag"),
        (1, 2),
        LinearProbe,
        {"1": 97.3, "2": 96.8},
        "table 6 (accuracy, Penn Treebank)",
    ),
    "wsd": ProbeTask(
        "sense",
        "lemma",
        ("word", "lemma", "sense"),
        (4, 7, 8),
        NearestSense,
        {"baseline": 65.9, "1": 67.4, "2": 69.0},
        "table 5 (F1 of the nearest mean vector, trained on SemCor; the baseline is WordNet's "
        "first sense)",
    ),
}
