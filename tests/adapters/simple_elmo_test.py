"""The interface of simple_elmo, against the numbers of bilm-tf, which it runs."""

import json

import numpy as np
import pytest

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.adapters.simple_elmo import ElmoModel
from tests.support.bilm_tf import REFERENCE

RUN = np.load(REFERENCE / "inference.npz")
SENTENCES = json.loads(str(RUN["meta/sentences"]))[:4]
LAYERS = RUN["call1/lm_embeddings"]  # (4, layers, 8, dim), from zero states


@pytest.fixture
def model():
    model = ElmoModel()
    assert model.load(REFERENCE / "checkpoint") == "The model is now loaded."
    assert (model.vector_size, model.n_layers) == LAYERS.shape[:0:-2]
    return model


@pytest.mark.parametrize("max_batch_size", [32, 1])
def test_vectors_without_a_warm_up_are_those_of_bilm_tf(model, max_batch_size):
    model.batch_size = max_batch_size
    n_words = max(map(len, SENTENCES))
    expected = np.zeros((*LAYERS.shape[:2], n_words, LAYERS.shape[-1]), "float32")
    for row, words, layers in zip(expected, SENTENCES, LAYERS):
        row[:, : len(words)] = layers[:, : len(words)]
    for _ in range(2):
        for layers, vectors in {
            "all": expected,
            "top": expected[:, -1],
            "average": expected.mean(1),
        }.items():
            actual = model.get_elmo_vectors(SENTENCES, warmup=False, layers=layers)
            np.testing.assert_allclose(actual, vectors, atol=1e-5)
            means = vectors.sum(-2)
            means /= np.linalg.norm(means, axis=-1, keepdims=True)
            actual = model.get_elmo_vector_average(SENTENCES, warmup=False, layers=layers)
            np.testing.assert_allclose(actual, means, atol=1e-5)


def test_a_warm_model_is_settled(model):
    expected = ElmoEmbedder(REFERENCE / "checkpoint").embed_batch(SENTENCES, "average")
    cold = model.get_elmo_vectors(SENTENCES, warmup=False)
    warm = model.get_elmo_vectors(SENTENCES)
    for row, array in zip(warm, expected, strict=True):
        np.testing.assert_allclose(row[: len(array)], array, atol=1e-5)
        assert not row[len(array) :].any()
    assert abs(warm - cold).max() > 1e-3
    np.testing.assert_array_equal(model.get_elmo_vectors(SENTENCES, warmup=False), cold)


def test_strings_are_read_letter_by_letter_and_numbers_are_pythons(model):
    expected = model.get_elmo_vector_average([list("a ship"), list("sea")])
    with pytest.warns(UserWarning, match="letter by letter"):
        means = model.get_elmo_vector_average(text for text in ("a ship", "sea"))
    np.testing.assert_array_equal(means, expected)
    for vectors in (means, model.get_elmo_vectors(["sea"])[0]):
        assert json.loads(json.dumps(list(vectors[0]))) == vectors[0].tolist()


def test_a_text_that_is_not_tokenised(model, caplog):
    for _ in range(2):
        model.get_elmo_vectors([["It", "rained."]])
        model.get_elmo_vector_average([["It", "rained."]])
    assert "1 of 2 words end with punctuation" in caplog.text and len(caplog.records) == 1


def test_a_language_model_is_refused():
    with pytest.raises(ValueError, match="elmo-import and bidirectional_lm"):
        ElmoModel().load("tiny", full=True)
