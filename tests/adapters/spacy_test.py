"""The component of spaCy, against the vectors of `ElmoEmbedder`."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from allennlp_elmo_plugin import ElmoEmbedder

spacy = pytest.importorskip("spacy")

TEXTS = ["They play on the beach. It rains.", "A play", "", "The play was long .  He slept .", "a"]


def make(folder, *others, **config):
    nlp = spacy.blank("en")
    for name in others:
        nlp.add_pipe(name)
    nlp.add_pipe("elmo", config={"model": str(folder), **config})
    return nlp


@pytest.mark.parametrize("layers", ["average", "top", 0, "concatenated"])
@pytest.mark.parametrize("others", [(), ("sentencizer",)])
def test_vectors_of_parts(folder, layers, others):
    nlp = make(folder, *others, layers=layers)
    embedder = ElmoEmbedder(folder)
    docs = list(map(nlp, TEXTS))
    for doc in docs:
        sentences = [[token.text for token in part] for part in (doc.sents if others else [doc])]
        arrays = embedder.embed_batch(sentences, layers)
        dim = 48 if layers == "concatenated" else 16
        expected = np.concatenate([np.zeros((0, dim), "float32"), *arrays])
        np.testing.assert_allclose(doc.tensor, expected, atol=1e-5)
        for token in doc:
            np.testing.assert_array_equal(token.vector, doc.tensor[token.i])
        if len(doc):
            np.testing.assert_allclose(doc.vector, doc.tensor.mean(0), atol=1e-6)
            np.testing.assert_allclose(doc[1:].vector, doc.tensor[1:].sum(0) / max(1, len(doc) - 1))
    assert docs[2].tensor.shape == (0, dim) and not docs[2].vector.any()
    assert len(list(docs[0].sents)) == 2 if others else True
    for piped, doc in zip(nlp.pipe(TEXTS, batch_size=2), docs, strict=True):
        np.testing.assert_allclose(piped.tensor, doc.tensor, atol=1e-5)


def test_similarity_depends_on_the_context(folder):
    """spaCy's own is 1 for two tokens of the same word, and warns without word vectors."""
    nlp = make(folder)
    nlp.vocab.set_vector("play", np.ones(300, "float32"))  # as in en_core_web_md
    first, second = nlp("They play on the beach"), nlp("A play")
    with warnings.catch_warnings(action="error"):
        for one, other in ((first[1], second[1]), (first[1:3], second[:]), (first, second)):
            cosine = one.vector @ other.vector
            cosine /= np.linalg.norm(one.vector) * np.linalg.norm(other.vector)
            assert one.similarity(other) == pytest.approx(cosine, abs=1e-5)
            assert abs(cosine) < 0.9999
        assert nlp("").similarity(first) == 0


def test_saved_pipelines_contain_the_model(folder, tmp_path):
    nlp = make(folder)
    expected = nlp(TEXTS[0])
    nlp.to_disk(tmp_path / "saved")
    folder.rename(tmp_path / "moved")
    loaded = spacy.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded(TEXTS[0]).tensor, expected.tensor)
    loaded.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    np.testing.assert_array_equal(again(TEXTS[0]).tensor, expected.tensor)
    copy = pickle.loads(pickle.dumps(again(TEXTS[0])))
    np.testing.assert_array_equal(copy[1].vector, expected[1].vector)
    (doc,) = again.pipe(TEXTS[:1], n_process=2)
    np.testing.assert_array_equal(doc.tensor, expected.tensor)


def test_an_installed_package_is_imported_only_for_its_component(subprocess_environment):
    """Otherwise any pipeline, such as that of AllenNLP's tokenizer, would activate the plugin."""
    script = """
import sys, spacy
nlp = spacy.blank("en")
assert "allennlp_elmo_plugin" not in sys.modules
nlp.add_pipe("elmo")
assert nlp("A play").tensor.shape == (2, 256)
"""
    subprocess.run([sys.executable, "-c", script], env=subprocess_environment, check=True)
