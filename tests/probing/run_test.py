from pathlib import Path
from typing import List

import numpy as np
import pytest

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.probing import run as run_module
from allennlp_elmo_plugin.probing.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.probing.probes import TASKS
from allennlp_elmo_plugin.probing.run import representations, run
from tests.support.testing import write_random_elmo


@pytest.fixture
def embedder(tmp_path: Path) -> ElmoEmbedder:
    return ElmoEmbedder(*write_random_elmo(tmp_path))


def _sentence(text: str) -> LabelledSentence:
    """`word/LABEL` or a word without a label."""
    parts = [part.partition("/") for part in text.split()]
    words = [word for word, _, _ in parts]
    examples = [Example(i, word, label) for i, (word, _, label) in enumerate(parts) if label]
    return LabelledSentence(words, examples)


TRAIN = [
    "to/P run/V home", "the/D run/N ends/V", "a/D run/N", "they/P run/V", "ends/V of/P the/D run/N"
]  # fmt: skip
TEST = ["they run/V", "the run/N of/P ends/N", "a/D new/J"]


def test_each_layer_and_direction_is_probed() -> None:
    names = ["token layer", "LSTM 1", "LSTM 1, forward", "LSTM 1, backward"]
    both = representations(2, ["forward", "backward"], 8)
    assert [each.name for each in both] == names
    assert [each.layer for each in both] == [0, 1, 1, 1]
    assert [each.direction for each in both] == ["both", "both", "forward", "backward"]
    columns = [slice(0, 4), slice(0, 8), slice(0, 4), slice(4, 8)]
    assert [each.columns for each in both] == columns
    one = representations(3, ["forward"], 4)
    assert [each.name for each in one] == ["token layer", "LSTM 1", "LSTM 2"]
    assert all(each.columns == slice(0, 4) for each in one)


@pytest.mark.parametrize("at_once", [1, 1024])
def test_senses_are_those_of_a_plain_implementation(
    at_once: int, embedder: ElmoEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_SENTENCES_AT_ONCE", at_once)
    train, test = [[_sentence(text) for text in texts] for texts in (TRAIN, TEST)]
    results = run(TASKS["wsd"], embedder, train, test)

    assert (results["n_train"], results["n_labels"]) == (13, 4)
    # `run` has two labels in training, `new` none.
    assert results["n_test"] == {"all": 6, "ambiguous": 2, "unseen": 1}
    # `run` is mostly N in training, `ends` is V.
    expected = {"all": 100 * 3 / 6, "ambiguous": 50.0, "unseen": 0.0}
    assert results["baseline"] == pytest.approx(expected)

    def vector(sentence: LabelledSentence, position: int, row: dict) -> "np.ndarray":
        layers = embedder.embed_sentence(sentence.words)
        parts = {"both": slice(None), "forward": slice(0, 8), "backward": slice(8, 16)}
        return layers[row["layer"], position, parts[row["direction"]]]

    assert len(results["layers"]) == 7
    for row in results["layers"]:
        means = {}
        for label in "VN":
            found = [
                vector(sentence, example.position, row)
                for sentence in train
                for example in sentence.examples
                if (example.key, example.label) == ("run", label)
            ]
            assert len(found) == 3 - (label == "V")
            means[label] = np.mean(found, axis=0)
        right = 0
        for sentence in test[:2]:
            query = vector(sentence, 1, row)
            cosines = {
                label: query @ mean / np.linalg.norm(query) / np.linalg.norm(mean)
                for label, mean in means.items()
            }
            right += max(cosines, key=lambda label: cosines[label]) == sentence.examples[0].label
        assert row["accuracy"]["ambiguous"] == pytest.approx(100 * right / 2)
        assert row["accuracy"]["all"] == pytest.approx(100 * (right + 2) / 6)


def test_each_probe_gets_its_layer(embedder: ElmoEmbedder) -> None:
    """A word's own tag is in all layers; the word before it only where context is."""
    rng = np.random.default_rng(0)

    def sentences(n: int) -> List[LabelledSentence]:
        drawn = rng.integers(2, size=(n, 3))
        return [
            LabelledSentence(
                ["aaa" if i else "zzz" for i in row],
                [Example(1, "k", "after aaa" if row[0] else "after zzz")],
            )
            for row in drawn.tolist()
        ]

    results = run(TASKS["pos"], embedder, sentences(300), sentences(200))
    accuracy = {row["name"]: row["accuracy"]["all"] for row in results["layers"]}
    assert accuracy["token layer"] < 70 and accuracy["LSTM 1, backward"] < 70
    assert accuracy["LSTM 1, forward"] > 95 and accuracy["LSTM 1"] > 95
    assert results["n_test"] == {"all": 200, "ambiguous": 200, "unseen": 0}
    assert results["baseline"]["unseen"] is None
