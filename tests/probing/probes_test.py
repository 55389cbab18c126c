import math
from typing import List

import numpy as np

from allennlp_elmo_plugin.probing.labelled_text import Example
from allennlp_elmo_plugin.probing.probes import LinearProbe, MostFrequentLabel, NearestSense


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
        similarities = {}
        for sense in {each.label for each in train if each.key == example.key}:
            rows = [
                row.tolist()
                for row, each in zip(vectors, train)
                if each.key == example.key and each.label == sense
            ]
            mean = [sum(column) / len(rows) for column in zip(*rows)]
            similarities[sense] = cosine(vector, mean)
        if not similarities:
            assert example.key == "k6" and label == baseline.predict(example)
        else:
            assert label == max(similarities, key=lambda sense: similarities[sense])
    assert len(set(predicted)) == 3


def test_a_vector_of_zeros_has_a_sense() -> None:
    examples = _examples("a x", "a x", "a y")
    probe = NearestSense(np.zeros((3, 2), "float32"), examples, MostFrequentLabel(examples))
    assert probe.predict(np.zeros((1, 2), "float32"), examples[:1]) == ["x"]


def test_a_linear_probe_finds_what_is_linear() -> None:
    rng = np.random.default_rng(0)
    # Dimensions of very different sizes, one of them constant, and labels of which one is rare
    vectors = (rng.normal(size=(600, 4)) * [1000, 1, 0.01, 0] + [5, 0, 0, 7]).astype("float32")
    scores = vectors @ np.array([[0.001, 1, 0, 0], [0, -1, 100, 0], [-0.001, 0, -100, 0]]).T
    examples = [Example(0, "k", "abc"[i]) for i in scores.argmax(1)]
    probe = LinearProbe(vectors[:400], examples[:400], MostFrequentLabel(examples))
    predicted = probe.predict(vectors[400:], examples[400:])
    right = [label == each.label for label, each in zip(predicted, examples[400:])]
    assert sum(right) / len(right) > 0.95
    again = LinearProbe(vectors[:400], examples[:400], MostFrequentLabel(examples))
    assert again.predict(vectors[400:], examples[400:]) == predicted
