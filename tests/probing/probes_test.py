import math
from typing import Any, List

import numpy as np
import pytest

from allennlp_elmo_plugin.probing.labelled_text import Example
from allennlp_elmo_plugin.probing.probes import (
    LinearProbe,
    MostFrequentLabel,
    NearestSense,
)


def _examples(*pairs: str) -> List[Example]:
    return [Example(0, *pair.split()) for pair in pairs]


def test_most_frequent_label() -> None:
    baseline = MostFrequentLabel(_examples("run 02", "be 01", "run 01", "run 01", "go 02", "go 03"))
    expected = {"run": "01", "be": "01", "go": "02", "unseen": "01"}
    for key, label in expected.items():
        assert baseline.predict(Example(0, key, "")) == label
    assert baseline.labels["run"] == ["01", "02"]


def test_the_nearest_sense_is_that_of_a_plain_implementation() -> None:
    rng = np.random.default_rng(0)
    train = [Example(0, f"k{rng.integers(6)}", f"s{rng.integers(3)}") for _ in range(60)]
    vectors = rng.normal(size=(60, 5)).astype("float32") + 1
    test = [Example(0, f"k{i % 7}", "") for i in range(40)]
    test_vectors = rng.normal(size=(40, 5)).astype("float32") + 1
    baseline = MostFrequentLabel(train)
    predicted = NearestSense(vectors, train, baseline).predict(test_vectors, test)

    def cosine(a: List[float], b: List[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b))
        return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))

    for vector, example, label in zip(test_vectors.tolist(), test, predicted):
        of_key = [(each, row) for each, row in zip(train, vectors) if each.key == example.key]
        similarities = {}
        for sense in {each.label for each, _ in of_key}:
            rows = [row.tolist() for each, row in of_key if each.label == sense]
            mean = [sum(column) / len(rows) for column in zip(*rows)]
            similarities[sense] = cosine(vector, mean)
        if not similarities:
            assert example.key == "k6" and label == baseline.predict(example)
        else:
            assert label == max(similarities, key=lambda sense: similarities[sense])
    assert len(set(predicted)) == 3


def test_a_linear_probe_finds_what_is_linear_in_any_image_of_the_vectors() -> None:
    rng = np.random.default_rng(0)
    # Dimensions of different sizes, a constant one and one that occurs twice
    vectors = rng.normal(size=(600, 5)) * [10, 1, 0.1, 0, 0] + [5, 0, 0, 7, 0]
    vectors[:, 4] = vectors[:, 0]
    scores = vectors @ np.array([[0.1, 1, 0, 0, 0], [0, -1, 10, 0, 0], [-0.1, 0, -10, 0, 0]]).T
    examples = [Example(0, "k", "abc"[i]) for i in scores.argmax(1)]
    baseline = MostFrequentLabel(examples)
    image = rng.normal(size=(5, 5))
    found = []
    for each in (vectors, vectors[:, ::-1] / 3 - 1, vectors / [10, 1, 0.1, 1, 1] @ image):
        each = each.astype("float32")
        probe = LinearProbe(each[:400], examples[:400], baseline)
        found.append(np.array(probe.predict(each[400:], examples[400:])))
    assert np.mean(found[0] == [example.label for example in examples[400:]]) > 0.95
    assert all(np.mean(other == found[0]) > 0.98 for other in found[1:])


def test_a_linear_probe_minimises_a_plain_loss() -> None:
    """The cross entropy of the whitened vectors, with a penalty: no small step makes it less."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 3))
    labels = (vectors[:, 0] + rng.normal(size=300) > 0).astype(int) + (vectors[:, 1] > 1)
    examples = [Example(0, "k", str(label)) for label in labels]
    vectors = vectors.astype("float32")
    probe = LinearProbe(vectors, examples, MostFrequentLabel(examples))
    whitening, regression = probe._classifier[0], probe._classifier[1]
    whitened = whitening.transform(vectors)
    assert np.cov(whitened.T) == pytest.approx(np.eye(3), abs=1e-4)

    def loss(weights: Any, bias: Any) -> float:
        total = 5 * float((weights**2).sum())
        for vector, label in zip(whitened, labels):
            scores = weights @ vector + bias
            total += math.log(sum(math.exp(score) for score in scores)) - scores[label]
        return total

    weights, bias = regression.coef_, regression.intercept_
    best = loss(weights, bias)
    for _ in range(10):
        step = 0.05 * rng.normal(size=weights.shape), 0.05 * rng.normal(size=bias.shape)
        assert loss(weights + step[0], bias + step[1]) > best
        assert loss(weights - step[0], bias - step[1]) > best


def test_fewer_examples_than_dimensions() -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 9)).astype("float32")
    examples = _examples("a x", "a y", "a x")
    probe = LinearProbe(vectors, examples, MostFrequentLabel(examples))
    assert probe.predict(vectors, examples) == ["x", "x", "x"]
    zeros = np.zeros((3, 9), "float32")
    assert LinearProbe(zeros + 1, examples, MostFrequentLabel(examples)).predict(zeros, examples)
