from pathlib import Path

import numpy as np
import pytest

from allennlp_elmo_plugin.analysis import probing as run_module
from allennlp_elmo_plugin.analysis.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.analysis.probes import TASKS
from allennlp_elmo_plugin.analysis.probing import representations, run
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.testing import write_random_elmo


def _sentences(*texts: str) -> list[LabelledSentence]:
    """Each word is `word/LABEL`, or has no label."""
    sentences = []
    for text in texts:
        parts = [part.partition("/") for part in text.split()]
        examples = [Example(i, word, label) for i, (word, _, label) in enumerate(parts) if label]
        sentences.append(LabelledSentence([word for word, _, _ in parts], examples))
    return sentences


TRAIN = _sentences(
    "to/P run/V home", "the/D run/N ends/V", "a/D run/N", "they/P run/V", "ends/V of/P the/D run/N"
)
TEST = _sentences("they run/V", "the run/N of/P ends/N", "a/D new/J")


@pytest.mark.parametrize("task, at_once", [("wsd", 1), ("wsd", 1024), ("pos", 1024)])
def test_each_layer_and_direction_is_probed_by_its_vectors(
    task: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_SENTENCES_AT_ONCE", at_once)
    names = [
        each["name"] for each in representations(3, ["forward"])
    ]  # of a model of one direction
    assert names == ["token layer", "LSTM 1", "LSTM 2"]
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    results = run(TASKS[task], embedder, TRAIN, TEST)
    assert (results["n_train"], results["n_labels"]) == (13, 4)
    # `run` has two labels in training, `new` none.
    assert results["n_test"] == {"all": 6, "ambiguous": 2, "unseen": 1}
    # `run` is mostly N in training, `ends` is V.
    assert results["baseline"] == {"all": 50.0, "ambiguous": 50.0, "unseen": 0.0}
    assert run(TASKS[task], embedder, TRAIN, TEST[:1])["baseline"]["unseen"] is None

    examples, tested = ([each for s in some for each in s.examples] for some in (TRAIN, TEST))
    parts = {"both": slice(0, 16), "forward": slice(0, 8), "backward": slice(8, 16)}
    rows = [(0, "both"), *((layer, direction) for layer in (1, 2) for direction in parts)]
    assert [(row["layer"], row["direction"]) for row in results["layers"]] == rows
    accuracies = set()
    for row in results["layers"]:
        vectors, test_vectors = (
            [
                embedder.embed_sentence(words)[row["layer"], each.position, parts[row["direction"]]]
                for words, labelled in some
                for each in labelled
            ]
            for some in (TRAIN, TEST)
        )
        predicted = (
            TASKS[task].probe(np.stack(vectors), examples).predict(np.stack(test_vectors), tested)
        )
        right = [each.label == label for each, label in zip(tested, predicted)]
        ambiguous = [each for each, example in zip(right, tested) if example.key == "run"]
        expected = {"all": 100 * np.mean(right), "ambiguous": 100 * np.mean(ambiguous)}
        assert row["accuracy"] == pytest.approx({**expected, "unseen": 0.0})
        accuracies.add(row["accuracy"]["all"])
    assert len(accuracies) > 1
