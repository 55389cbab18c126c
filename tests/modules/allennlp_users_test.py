"""
What AllenNLP's own tests of ELMo do with it, private names and all, done with ours by the names
that those import.
"""

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.testing import ModelTestCase
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.data_loaders import SimpleDataLoader
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer, TokenIndexer
from allennlp.modules.elmo import _ElmoBiLm
from allennlp.modules.token_embedders import ElmoTokenEmbedder
from allennlp.nn.util import remove_sentence_boundaries

from tests.support import originals
from tests.support.testing import write_random_elmo

SENTENCES = [
    ["A", "short", "sentence", "of", "seven", "words", "."],
    ["Another", "one", "'s", "here"],
    ["One"],
]


@pytest.fixture
def files(tmp_path: Path) -> Tuple[str, str]:
    return write_random_elmo(tmp_path, seed=8)


def both_indexers(sentences: List[List[str]]) -> Tuple[Vocabulary, torch.Tensor, torch.Tensor]:
    """The vocabulary, and the character ids and word ids of the sentences."""
    indexers = {
        "characters": TokenIndexer.by_name("elmo_characters")(),
        "tokens": SingleIdTokenIndexer(),
    }
    batch = Batch(
        Instance({"elmo": TextField([Token(word) for word in sentence], indexers)})
        for sentence in sentences
    )
    vocab = Vocabulary.from_instances(batch)
    batch.index_instances(vocab)
    tensors = batch.as_tensor_dict()["elmo"]
    return vocab, tensors["characters"]["elmo_tokens"], tensors["tokens"]["tokens"]


def assert_almost_equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    np.testing.assert_array_almost_equal(actual.data.numpy(), expected.data.numpy(), decimal=6)


class TestElmoBiLm:
    def test_batches_of_a_loader(self, files: Tuple[str, str]) -> None:
        indexers = {"characters": TokenIndexer.by_name("elmo_characters")()}
        instances = [
            Instance({"elmo": TextField([Token(word) for word in sentence], indexers)})
            for sentence in SENTENCES * 3
        ]
        loader = SimpleDataLoader(instances, 3)
        loader.index_with(Vocabulary())
        ours, original = _ElmoBiLm(*files), originals.elmo._ElmoBiLm(*files)
        for batch in loader:
            ids = batch["elmo"]["characters"]["elmo_tokens"]
            tops = []
            for bilm in (ours, original):
                output = bilm(ids)
                top, mask = remove_sentence_boundaries(output["activations"][2], output["mask"])
                assert mask.data.numpy().sum(axis=1).tolist() == [7, 4, 1]
                tops.append(top)
            np.testing.assert_allclose(*(top.data.numpy() for top in tops), atol=1e-6)

    def test_cache(self, files: Tuple[str, str]) -> None:
        vocab, characters, words = both_indexers(SENTENCES)
        cached_words = list(vocab.get_token_to_index_vocabulary("tokens").keys())
        plain = _ElmoBiLm(*files)
        plain.eval()
        # Word ids without a cache are of no interest, whatever their shape.
        expected = plain(characters, characters)
        cached = _ElmoBiLm(*files, vocab_to_cache=cached_words)
        cached.eval()
        found = cached(characters, words)
        assert_almost_equal(found["mask"], expected["mask"])
        for a, e in zip(found["activations"], expected["activations"]):
            assert_almost_equal(a, e)


class TestElmoTokenEmbedder:
    def test_from_params_of_paths(self, files: Tuple[str, str]) -> None:
        params = {"options_file": Path(files[0]), "weight_file": Path(files[1])}
        embedder = ElmoTokenEmbedder.from_params(
            vocab=Vocabulary(), params=Params({**params, "projection_dim": 20})
        )
        assert embedder.get_output_dim() == 20
        words = [[6, 5, 4, *[0] * 47], [3, 2, 1, 0, *[0] * 46]]
        assert embedder(torch.LongTensor([words])).data.numpy().shape == (1, 2, 20)
        assert embedder(torch.LongTensor([[words[:1]]])).data.numpy().shape == (1, 1, 1, 20)


class TestModel(ModelTestCase):
    @pytest.mark.parametrize("arguments", [{}, {"requires_grad": True}], ids=str)
    def test_can_train_save_and_load(
        self, files: Tuple[str, str], arguments: Dict[str, Any]
    ) -> None:
        elmo = {"type": "elmo_token_embedder", "options_file": files[0], "weight_file": files[1]}
        data = self.TEST_DIR / "data.tsv"
        data.write_text("Alice###N saw###V\nthe###D old###A mill###N\n", encoding="utf-8")
        reader = {"type": "sequence_tagging", "token_indexers": {"e": {"type": "elmo_characters"}}}
        config = {
            "dataset_reader": reader,
            "train_data_path": str(data),
            "validation_data_path": str(data),
            "model": {
                "type": "simple_tagger",
                "text_field_embedder": {"token_embedders": {"e": {**elmo, **arguments}}},
                "encoder": {"type": "gru", "input_size": 16, "hidden_size": 6},
            },
            "data_loader": {"batch_size": 2},
            "trainer": {"num_epochs": 2, "cuda_device": -1, "optimizer": "adam"},
        }
        path = self.TEST_DIR / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.set_up_model(str(path), str(data))
        self.ensure_model_can_train_save_and_load(str(path))
        output = self.model(**self.dataset.as_tensor_dict())
        assert output["class_probabilities"].size() == (2, 3, 4)
