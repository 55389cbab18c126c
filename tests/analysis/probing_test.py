import numpy as np
import pytest

from allennlp_elmo_plugin.analysis import probing
from allennlp_elmo_plugin.analysis.labelled_text import Example, LabelledSentence
from allennlp_elmo_plugin.analysis.probing import TASKS, LinearProbe, NearestSense
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.testing import write_random_elmo


def _sentences(*texts):
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
def test_each_layer_and_direction_is_probed_by_its_vectors(task, at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "SENTENCES_AT_ONCE", at_once)
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    results = probing.run(TASKS[task], embedder, TRAIN, TEST)
    # Senses: `run` has two of eight.
    assert (results["n_train"], results["n_labels"]) == (13, 4 if task == "pos" else 8)
    # `run` has two labels in training, `new` none.
    assert results["n_test"] == {"all": 6, "ambiguous": 2, "unseen": 1}
    # `run` is mostly N in training, `ends` is V.
    assert results["baseline"] == {"all": 50.0, "ambiguous": 50.0, "unseen": 0.0}
    without_new = probing.run(TASKS[task], embedder, TRAIN, TEST[:1])
    assert without_new["baseline"]["unseen"] is None

    examples, tested = ([example for s in text for example in s.examples] for text in (TRAIN, TEST))
    parts = {"both": slice(0, 16), "forward": slice(0, 8), "backward": slice(8, 16)}
    rows = [(0, "both"), *((layer, direction) for layer in (1, 2) for direction in parts)]
    assert [(row["layer"], row["direction"]) for row in results["layers"]] == rows
    assert len(probing.representations(3, ["forward"])) == 3  # without directions
    accuracies = set()
    for row in results["layers"]:
        vectors = [
            embedder.embed_sentence(words)[row["layer"], example.position, parts[row["direction"]]]
            for words, probed in (*TRAIN, *TEST)
            for example in probed
        ]
        probe = TASKS[task].probe(np.stack(vectors[:13]), examples)
        predicted = probe.predict(np.stack(vectors[13:]), tested)
        right = [example.label == label for example, label in zip(tested, predicted)]
        ambiguous = [correct for correct, example in zip(right, tested) if example.key == "run"]
        expected = {"all": 100 * np.mean(right), "ambiguous": 100 * np.mean(ambiguous)}
        assert row["accuracy"] == pytest.approx({**expected, "unseen": 0.0})
        accuracies.add(row["accuracy"]["all"])
    assert len(accuracies) > 1


def test_one_label_is_nothing_to_learn(tmp_path):
    embedder = ElmoEmbedder(*write_random_elmo(tmp_path))
    with pytest.raises(ValueError, match="all 2 examples of training have the label 'V'; see --c"):
        probing.run(TASKS["pos"], embedder, _sentences("ends/V run/V"), TEST)


def _results(task):
    def accuracies(value):
        return {"all": value, "ambiguous": value - 10, "unseen": None}

    rows = [("token layer", 0, "both", 80.0), ("LSTM 1", 1, "both", 90.125)]
    rows.append(("LSTM 1, forward", 1, "forward", 85.0))
    keys = ("name", "layer", "direction")
    layers = [{**dict(zip(keys, row)), "accuracy": accuracies(row[3])} for row in rows]
    n_test = {"all": 1200, "ambiguous": 7, "unseen": 0}
    numbers = {"n_train": 3000, "n_test": n_test, "n_labels": 12}
    return {"task": task, **numbers, "baseline": accuracies(70.0), "layers": layers}


def test_the_table_has_each_layer_and_the_figures_of_the_paper():
    lines = probing.markdown(_results("pos")).splitlines()
    assert lines[:6] == [
        "|  | all (1,200) | ambiguous (7) | unseen (0) | paper |",
        "|---|---|---|---|---|",
        "| most frequent tag of the word | 70.00 | 60.00 |  |  |",
        "| token layer | 80.00 | 70.00 |  |  |",
        "| LSTM 1 | 90.12 | 80.12 |  | 97.3 |",
        "| LSTM 1, forward | 85.00 | 75.00 |  |  |",
    ]
    assert "3,000 examples to train, with 12 tags" in lines[-1]
    row = "| most frequent sense of the lemma | 70.00 | 60.00 |  | 65.9 |"
    assert row in probing.markdown(_results("wsd"))


def test_the_picture_has_a_line_for_each_direction(savefig, tmp_path):
    probing.draw(_results("pos"), tmp_path / "layers.png")
    (axes,) = savefig.call_args.args[0].axes
    lines = {line.get_label(): list(map(list, line.get_data())) for line in axes.lines}
    assert lines == {
        "both": [[0, 1], [80.0, 90.125]],
        "forward": [[0, 1], [80.0, 85.0]],
        "most frequent tag": [[0, 1], [70.0, 70.0]],
        "Peters et al. (2018)": [[1, 2], [97.3, 96.8]],
    }
    assert [text.get_text() for text in axes.get_xticklabels()] == ["token layer", "LSTM 1"]
    assert axes.get_ylim() == (0, 100)


def test_the_sense_with_the_nearest_mean_vector():
    vectors = np.array([[1, 0], [9, 0], [0, 2], [0, 0.1], [5, 5]], "float32")
    train = [Example(0, key, sense) for key, sense in ("ax", "ax", "ay", "ax", "by")]
    probe = NearestSense(vectors, train)
    # The mean of x is (10, 0.1) / 3, however long it is; a new key has the most frequent label.
    test = {(5, 4.9): ("a", "x"), (4.9, 5.3): ("a", "y"), (9, 0): ("b", "y"), (0, 9): ("c", "x")}
    examples = [Example(0, key, "") for key, _ in test.values()]
    predicted = probe.predict(np.array(list(test), "float32"), examples)
    assert predicted == [sense for _, sense in test.values()]


def test_a_linear_probe_minimises_the_cross_entropy_of_whitened_vectors():
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
