"""Classifiers of vectors: a linear one, and the nearest mean vector of a word's senses."""

import warnings
from collections import Counter
from typing import Any, Callable, Dict, Hashable, Iterable, List, Protocol, Sequence

import numpy

from allennlp_elmo_plugin.probing.labelled_text import Example

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions

_L2 = 10.0
"""Half of it times the sum of the squared coefficients is added to the sum of the losses."""

_MAX_STEPS = 5_000
"""Of 2,898 regressions on the senses of EWT PropBank with `tiny`, one took more than 500."""

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
        self.labels: Dict[str, List[str]] = {}
        """The labels of each key, the most frequent first."""
        counts: Dict[str, Counter] = {}
        for example in examples:
            counts.setdefault(example.key, Counter())[example.label] += 1
        for key, count in counts.items():
            self.labels[key] = [label for label, _ in count.most_common()]
        total = Counter(example.label for example in examples)
        self._of_unseen = total.most_common(1)[0][0]

    def predict(self, example: Example) -> str:
        """Return the label."""
        labels = self.labels.get(example.key)
        return labels[0] if labels else self._of_unseen


class Probe(Protocol):
    """
    A classifier that has been trained on vectors. `n_stopped` of its regressions had not converged
    after the largest number of steps.
    """

    n_stopped: int

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
        self._mean = vectors.mean(0)
        centered = vectors - self._mean
        covariance = (centered.T @ centered).astype("float64") / len(centered)
        variances, axes = numpy.linalg.eigh(covariance)
        variances = numpy.maximum(variances, 1e-30)  # All vectors may be the same.
        kept = variances >= _SMALLEST_VARIANCE * variances[-1]
        self._whitening = (axes[:, kept] / numpy.sqrt(variances[kept])).astype("float32")
        self._classifier = _regression(centered @ self._whitening, examples)
        self.n_stopped = _n_stopped([self._classifier])

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
        self.n_stopped = 0
        self._baseline = baseline
        rows = _rows_by(examples, lambda example: (example.key, example.label))
        self._senses: Dict[str, Array] = {}
        """By key, the mean vectors, of length 1, in the order of the baseline's labels."""
        for key, labels in baseline.labels.items():
            means = numpy.stack([vectors[rows[key, label]].mean(0) for label in labels])
            self._senses[key] = _of_length_1(means)

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        return [self._nearest(vector, example) for vector, example in zip(vectors, examples)]

    def _nearest(self, vector: Array, example: Example) -> str:
        senses = self._senses.get(example.key)
        if senses is None:
            return self._baseline.predict(example)
        return self._baseline.labels[example.key][int(numpy.argmax(senses @ vector))]


class LinearSenses:
    """
    For each key with several labels, a logistic regression from the vectors, standardised, to its
    labels. For other keys, the baseline's label.

    # Parameters

    vectors, examples, baseline
        As for `LinearProbe`.
    """

    def __init__(
        self, vectors: Array, examples: Sequence[Example], baseline: MostFrequentLabel
    ) -> None:
        self._baseline = baseline
        self._mean, deviation = vectors.mean(0), vectors.std(0)
        self._deviation = numpy.where(deviation > 0, deviation, 1)
        self._classifiers = {
            key: _regression(self._standardised(vectors[rows]), [examples[i] for i in rows])
            for key, rows in _rows_by(examples, lambda example: example.key).items()
            if len(baseline.labels[key]) > 1
        }
        self.n_stopped = _n_stopped(self._classifiers.values())

    def _standardised(self, vectors: Array) -> Array:
        return (vectors - self._mean) / self._deviation

    def predict(self, vectors: Array, examples: Sequence[Example]) -> List[str]:
        labels = [self._baseline.predict(example) for example in examples]
        for row, (vector, example) in enumerate(zip(vectors, examples)):
            if example.key in self._classifiers:
                vector = self._standardised(vector)
                labels[row] = self._classifiers[example.key].predict(vector[None])[0]
        return labels


def _rows_by(
    examples: Sequence[Example], group: Callable[[Example], Hashable]
) -> Dict[Any, List[int]]:
    """Return the rows of the examples of each group."""
    rows: Dict[Any, List[int]] = {}
    for row, example in enumerate(examples):
        rows.setdefault(group(example), []).append(row)
    return rows


def _regression(vectors: Array, examples: Sequence[Example]) -> Any:
    # Slow to import
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # See `_n_stopped`.
        classifier = LogisticRegression(C=1 / _L2, max_iter=_MAX_STEPS)
        return classifier.fit(vectors, [example.label for example in examples])


def _n_stopped(regressions: Iterable[Any]) -> int:
    return sum(int(each.n_iter_.max()) >= _MAX_STEPS for each in regressions)


def _of_length_1(vectors: Array) -> Array:
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / numpy.maximum(lengths, 1e-12)
