import numpy as np
import pytest

from allennlp_elmo_plugin.analysis.labelled_text import Example
from allennlp_elmo_plugin.analysis.probes import LinearProbe, NearestSense, labels_by_key


def test_labels_are_ordered_by_their_frequency() -> None:
    pairs = ["run 02", "be 01", "run 01", "run 01", "go 02", "go 03"]
    assert labels_by_key([Example(0, *pair.split()) for pair in pairs]) == {
        **{None: ["01", "02", "03"], "run": ["01", "02"]},
        **{"be": ["01"], "go": ["02", "03"]},
    }


def test_the_sense_with_the_nearest_mean_vector() -> None:
    vectors = np.array([[1, 0], [9, 0], [0, 2], [0, 0.1], [5, 5]], "float32")
    train = [Example(0, key, sense) for key, sense in ("ax", "ax", "ay", "ax", "by")]
    probe = NearestSense(vectors, train)
    # The mean of x is (10, 0.1) / 3, however long it is; a new key has the most frequent label.
    test = {(5, 4.9): ("a", "x"), (4.9, 5.3): ("a", "y"), (9, 0): ("b", "y"), (0, 9): ("c", "x")}
    examples = [Example(0, key, "") for key, _ in test.values()]
    found = probe.predict(np.array(list(test), "float32"), examples)
    assert found == [sense for _, sense in test.values()]


def test_a_linear_probe_minimises_the_cross_entropy_of_whitened_vectors() -> None:
    """With a penalty of five times the squared weights: the gradient is zero."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 3)).astype("float32") * [1, 5, 1]
    labels = (vectors[:, 0] + rng.normal(size=300) > 0).astype(int) + (vectors[:, 1] > 1)
    vectors = np.hstack([vectors, vectors[:, :1]])  # One dimension is there twice.
    examples = [Example(0, "k", str(label)) for label in labels]
    probe = LinearProbe(vectors, examples)
    whitened = probe._classifier[0].transform(vectors)
    assert np.cov(whitened.T) == pytest.approx(np.eye(3), abs=1e-4)
    regression = probe._classifier[1]
    scores = np.exp(whitened @ regression.coef_.T + regression.intercept_)
    errors = scores / scores.sum(1, keepdims=True) - np.eye(3)[labels]
    assert errors.T @ whitened + 10 * regression.coef_ == pytest.approx(0, abs=0.05)
    assert errors.sum(0) == pytest.approx(0, abs=0.05)
    assert probe.predict(vectors, examples) == list(map(str, scores.argmax(1)))


def test_fewer_examples_than_dimensions() -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 9)).astype("float32")
    examples = [Example(0, "a", label) for label in "xyx"]
    assert LinearProbe(vectors, examples).predict(vectors, examples) == ["x", "x", "x"]
