"""The module of sentence-transformers, against `ElmoEmbedder.encode`."""

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.adapters.sentence_transformers import ElmoSentences
from tests.support.testing import write_random_elmo

TEXTS = ["They play on the beach .", "A play", "", "The play was long ."]
CHOICES = [{}, {"pooling": "max", "layers": "top"}]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "elmo").mkdir()
    write_random_elmo(tmp_path / "elmo", seed=2)
    return tmp_path / "elmo"


@pytest.mark.parametrize("settings", CHOICES)
def test_a_saved_module_contains_the_model(folder, tmp_path, settings):
    expected = ElmoEmbedder(folder).encode(TEXTS, **settings)
    module = ElmoSentences(folder, **settings)
    (tmp_path / "saved").mkdir()
    module.save(str(tmp_path / "saved"), safe_serialization=True)
    folder.rename(tmp_path / "moved")
    for each in (module, ElmoSentences.load(str(tmp_path / "saved"))):
        output = each(each.tokenize(TEXTS))["sentence_embedding"]
        np.testing.assert_allclose(output, expected, atol=1e-6)
        assert each.get_sentence_embedding_dimension() == expected.shape[1]


def test_a_text_that_is_not_tokenised(folder, caplog):
    module = ElmoSentences(folder)
    for _ in range(2):
        module.tokenize(["They play on the beach.", "A play."])
    (record,) = caplog.records
    assert record.message.endswith(" such as 'beach.'. Put spaces between words and punctuation.")


@pytest.mark.parametrize("settings", CHOICES)
def test_a_sentence_transformer(folder, tmp_path, settings):
    library = pytest.importorskip("sentence_transformers")
    expected = ElmoEmbedder(folder).encode(TEXTS, **settings)
    model = library.SentenceTransformer(modules=[ElmoSentences(folder, **settings)], device="cpu")
    model.save(str(tmp_path / "saved"))
    folder.rename(tmp_path / "moved")
    loaded = library.SentenceTransformer(
        str(tmp_path / "saved"), device="cpu", trust_remote_code=True
    )
    for each in (model, loaded):
        np.testing.assert_allclose(each.encode(TEXTS, batch_size=2), expected, atol=1e-6)
        assert each.get_sentence_embedding_dimension() == expected.shape[1]
        ours = ElmoEmbedder.similarity(expected[:1], expected[1:])
        torch.testing.assert_close(each.similarity(expected[:1], expected[1:]), ours)


def test_a_vector_has_one_dimension():
    for settings in ({"layers": "all"}, {"pooling": "sum"}):
        with pytest.raises(ValueError, match="give average or top, and mean"):
            ElmoSentences("tiny", **settings)
