"""
`ElmoBiLm` against AllenNLP's and bilm-tf's language model.
"""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules import elmo as ours
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from tests.support.elmo_pairs import (
    CACHED_WORDS,
    POSITIONS,
    SIZES,
    TEXT,
    Pair,
    assert_close,
    assert_same,
    assert_same_gradients,
    assert_same_layers,
    assert_same_state_dict,
    bilms,
    cached_ids,
    random_ids,
)
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"


class TestBiLm:
    @pytest.mark.parametrize("size", SIZES)
    def test_equals_the_original(self, files_of, size):
        pair = bilms(*files_of(size))
        assert pair.ours.num_layers == pair.original.num_layers
        assert pair.ours.get_output_dim() == pair.original.get_output_dim()
        for ids in (TEXT, random_ids(3, 9, 1, 5, 0)):
            assert_same_layers(pair.ours(ids), pair.original(ids))

    @pytest.mark.parametrize("sizes", [{"filters": [(1, 3), (3, 5)]}, {"lstm_dim": 8}])
    def test_projections_to_the_same_size(self, tmp_path, sizes):
        """bilm-tf has no projection where sizes agree; AllenNLP always reads one."""
        files = write_random_elmo(tmp_path, projection_dim=8, **sizes)
        pair = bilms(*files)
        assert_same_layers(pair.ours(TEXT), pair.original(TEXT))
        assert_same_state_dict(pair)

    def test_equals_bilm_tf(self):
        """Numbers of the original trainer's `BidirectionalLanguageModel`."""
        expected = np.load(REFERENCE / "inference.npz")
        checkpoint = REFERENCE / "checkpoint"
        bilm = ElmoBiLm(
            str(checkpoint / "options_inference.json"), str(checkpoint / "weights.hdf5")
        )
        sentences = json.loads(str(expected["meta/sentences"]))
        # bilm-tf's ids have the boundaries in them.
        ids = torch.from_numpy(expected["char_ids"])
        words = batch_to_ids(sentences)
        for row, sentence in enumerate(sentences):
            n = len(sentence)
            assert torch.equal(words[row, :n], ids[row, 1 : n + 1])
        for call, rows in (("call1", 4), ("call2", 4), ("call3", 2)):
            output = bilm(words[:rows])
            mask = torch.from_numpy(expected[f"{call}/mask"])
            assert torch.equal(output["mask"][:, 2:][:, : mask.shape[1]], mask)
            # (rows, layers, timesteps, dim)
            layers = torch.stack(output["activations"], dim=1)[:, :, 1:-1]
            layers = layers[:, :, : mask.shape[1]] * mask[:, None, :, None]
            lm_embeddings = torch.from_numpy(expected[f"{call}/lm_embeddings"])
            assert_close(layers, lm_embeddings * mask[:, None, :, None])

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_state_dict(self, files_of, requires_grad):
        arguments = {"requires_grad": requires_grad}
        pair = bilms(*files_of(), **arguments)
        assert_same_state_dict(pair)


class TestCachedWords:
    def pair(self, elmo_pair, size="plain", **arguments) -> Pair:
        return elmo_pair(size, vocab_to_cache=CACHED_WORDS, **arguments)

    @pytest.mark.parametrize("size", ["plain", "wide filters", "clips"])
    @pytest.mark.parametrize("arguments", [{}, {"representations": 2, "do_layer_norm": True}])
    def test_equals_the_original(self, elmo_pair, size, arguments):
        pair = self.pair(elmo_pair, size, **arguments)
        for _ in range(2):
            assert_same(pair, cached_ids(), POSITIONS)

    @pytest.mark.parametrize("position", [len(CACHED_WORDS), -1])
    def test_words_not_in_the_cache_are_computed_from_characters(self, elmo_pair, position):
        pair = self.pair(elmo_pair)
        positions = POSITIONS.clone()
        positions[0, 1] = position
        ids = random_ids(4, 1, 2)
        assert_same(pair, ids, positions)
        assert_same(pair, ids.view(3, 1, 4, 50), positions.view(3, 1, 4))

    def test_word_inputs_without_a_cache_are_ignored(self, elmo_pair, caplog):
        assert_same(elmo_pair(), cached_ids(), POSITIONS)
        loggers = {record.name for record in caplog.records if record.levelname == "WARNING"}
        assert loggers == {module.__name__ for module in (ours, original)}

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_state_dict(self, elmo_pair, requires_grad):
        pair = self.pair(elmo_pair, requires_grad=requires_grad)
        assert_same_state_dict(pair)
        name = "_elmo_lstm._word_embedding.weight"
        assert dict(pair.ours.named_parameters())[name].requires_grad is requires_grad

    def test_gradients(self, elmo_pair):
        pair = self.pair(elmo_pair, requires_grad=True)
        for elmo in pair:
            elmo(cached_ids(), POSITIONS)["elmo_representations"][0].pow(2).sum().backward()
        assert_same_gradients(pair)

    def test_word_ids_beyond_the_cache_without_characters(self, elmo_pair):
        """With characters AllenNLP computes those, and so do ours."""
        elmo = elmo_pair(vocab_to_cache=CACHED_WORDS).ours
        positions = POSITIONS
        expected = elmo(cached_ids(), positions)["elmo_representations"][0]
        elmo._elmo_lstm._elmo_lstm.reset_states()
        # Where all words are in the cache, what stands in for the characters is not read.
        assert_close(elmo(positions, positions)["elmo_representations"][0], expected)
        with pytest.raises(ValueError, match="the model reads character ids of shape"):
            elmo(positions, positions + 100 * (positions == 7))


class TestCarriedState:
    BATCHES = [
        random_ids(5, 3, seed=1),
        random_ids(2, 6, 4, 1, seed=2),  # grows
        random_ids(3, 3, seed=3),  # shrinks: the other rows' states wait
        random_ids(0, 4, 0, seed=4),
        random_ids(2, 1, 3, 5, 4, seed=5),
        random_ids(0, timesteps=1),
        random_ids(1, 2, 3, 4, 5, seed=6),
    ]

    @pytest.mark.parametrize("size", ["clips", "three layers"])
    def test_over_batches_of_different_sizes(self, elmo_pair, size):
        pair = elmo_pair(size, keep_sentence_boundaries=True)
        for batch in self.BATCHES:
            assert_same(pair, batch)

    def test_states_by_allennlps_name(self, elmo_pair):
        """Some programs take them for vectors of sentences."""
        pair, others = elmo_pair("three layers"), elmo_pair("three layers")
        lstms, others_lstms = (
            [elmo._elmo_lstm._elmo_lstm for elmo in each] for each in (pair, others)
        )
        assert [lstm._states for lstm in lstms] == [None, None]
        for batch in self.BATCHES[:4]:
            assert_same(pair, batch)
            for mine, its in zip(*(lstm._states for lstm in lstms)):
                assert_close(mine, its)
        for lstm, other in zip(lstms, others_lstms):
            other._states = lstm._states
        assert_same(others, self.BATCHES[4])
        for other in others_lstms:
            other._states = None
        assert_same(others, self.BATCHES[0])

    def test_reset_of_some_rows(self, elmo_pair):
        pair = elmo_pair()
        assert_same(pair, self.BATCHES[1])
        for elmo in pair:
            elmo._elmo_lstm._elmo_lstm.reset_states(torch.tensor([True, False, True, False]))
        assert_same(pair, self.BATCHES[1])


class TestInitialState:
    BATCHES = TestCarriedState.BATCHES

    def elmo(self, files_of, initial_state: str, size: str = "clips", **arguments: Any) -> Any:
        return Elmo(
            *files_of(size), 1, dropout=0.0, initial_state=initial_state, **arguments
        ).eval()

    @staticmethod
    def vectors(elmo: Any, ids: torch.Tensor) -> torch.Tensor:
        return elmo(ids)["elmo_representations"][0]

    @pytest.mark.parametrize("initial_state", ["settled", "zero"])
    def test_is_the_same_whatever_came_before_and_in_any_batch(self, files_of, initial_state):
        elmo = self.elmo(files_of, initial_state)
        first = self.vectors(elmo, TEXT)
        for batch in self.BATCHES:
            self.vectors(elmo, batch)
        assert torch.equal(self.vectors(elmo, TEXT), first)
        assert torch.equal(self.vectors(self.elmo(files_of, initial_state), TEXT), first)
        for row in range(len(TEXT)):
            alone = self.vectors(elmo, TEXT[row : row + 1])
            assert (alone - first[row]).abs().max() <= 1e-6

    def test_settled_is_the_original_after_empty_sentences(self, elmo_pair, files_of):
        pair = elmo_pair("clips", keep_sentence_boundaries=True)
        elmo = self.elmo(files_of, "settled", keep_sentence_boundaries=True)
        elmo.load_state_dict(pair.original.state_dict())
        for _ in range(100):
            pair.original(torch.zeros(len(TEXT), 1, 50, dtype=torch.long))
        assert_same(Pair(elmo, pair.original), TEXT)
        zero = self.elmo(files_of, "zero", keep_sentence_boundaries=True)
        zero.load_state_dict(pair.original.state_dict())
        assert (self.vectors(zero, TEXT) - self.vectors(elmo, TEXT)).abs().max() > 1e-2

    def test_settled_follows_the_parameters(self, files_of):
        elmo = self.elmo(files_of, "settled")
        self.vectors(elmo, TEXT)
        elmo.load_state_dict({k: 0.9 * v for k, v in elmo.state_dict().items()})
        fresh = self.elmo(files_of, "settled")
        fresh.load_state_dict(elmo.state_dict())
        assert torch.equal(self.vectors(elmo, TEXT), self.vectors(fresh, TEXT))

    def test_settled_is_computed_once(self, files_of):
        bilm = ElmoBiLm(*files_of(), initial_state="settled")
        bilm(TEXT)
        state = bilm.settled_state()
        bilm(TEXT)
        assert bilm.settled_state() is state

    def test_gradients_and_state_dict(self, elmo_pair, files_of):
        elmo = self.elmo(files_of, "settled", requires_grad=True)
        self.vectors(elmo, TEXT).sum().backward()
        assert all(p.grad is not None for p in elmo._elmo_lstm.parameters())
        assert set(elmo.state_dict()) == set(elmo_pair("clips").original.state_dict())

    def test_wrong_value(self, files_of):
        with pytest.raises(ConfigurationError, match="'warm'.*carried"):
            self.elmo(files_of, "warm")

    def test_fingerprint_is_that_of_the_layers(self, files_of, tmp_path):
        expected = ElmoBiLm(*files_of()).fingerprint()
        options_file, weight_file = files_of()
        options = json.loads(Path(options_file).read_text(encoding="utf-8"))
        path = tmp_path / "options.json"
        for section, key, value in (
            ("other", "n_epochs", 3),
            ("lstm", "cell_clip", 2.0),
            ("lstm", "proj_clip", 2.0),
            ("lstm", "use_skip_connections", False),
            ("char_cnn", "activation", "tanh"),
            ("char_cnn", "max_characters_per_token", 49),
        ):
            changed = copy.deepcopy(options)
            changed.setdefault(section, {})[key] = value
            path.write_text(json.dumps(changed), encoding="utf-8")
            found = ElmoBiLm(str(path), weight_file).fingerprint()
            assert (found == expected) == (section == "other"), key
        for setting in ({"initial_state": "zero"}, {"precision": "int8"}):
            assert ElmoBiLm(*files_of(), **setting).fingerprint() != expected
        other = ElmoBiLm(*files_of())
        with torch.no_grad():
            other.lstm.backward_layers[1].state_linearity.bias[3] += 1e-3
        assert other.fingerprint() != expected
