"""
What a sentence starts from: the states that batches carry, against AllenNLP's, and `initial_state`.
"""

import copy
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules.elmo import Elmo
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from tests.support.elmo_pairs import (
    CACHED_WORDS,
    POSITIONS,
    TEXT,
    Pair,
    assert_close,
    assert_same,
    cached_ids,
    random_ids,
)


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

    @pytest.mark.parametrize("size", ["plain", "clips", "three layers", "one layer"])
    def test_over_batches_of_different_sizes(self, elmo_pair, size):
        pair = elmo_pair(size, keep_sentence_boundaries=True)
        for batch in self.BATCHES:
            assert_same(pair, batch)

    def test_state_matters(self, elmo_pair):
        elmo = elmo_pair().ours
        first, second = (elmo(self.BATCHES[0])["elmo_representations"][0] for _ in range(2))
        assert (first - second).abs().max() > 1e-3

    def test_reset(self, elmo_pair):
        pair = elmo_pair()
        for batch in self.BATCHES[:2]:
            assert_same(pair, batch)
        for elmo in pair:
            elmo._elmo_lstm._elmo_lstm.reset_states()
        assert_same(pair, self.BATCHES[0])
        pair.ours._elmo_lstm._elmo_lstm.reset_states()
        assert_same(Pair(pair.ours, elmo_pair().original), self.BATCHES[0])

    @pytest.mark.parametrize("size", ["plain", "three layers"])
    def test_states_by_allennlps_name(self, elmo_pair, size):
        """Some programs take them for vectors of sentences."""
        pair, others = elmo_pair(size), elmo_pair(size)
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

    def test_stateless(self, elmo_pair):
        pair = elmo_pair()
        for elmo in pair:
            elmo._elmo_lstm._elmo_lstm.stateful = False
        for batch in self.BATCHES:
            # AllenNLP's fails when a batch grows, though the states are not used.
            pair.original._elmo_lstm._elmo_lstm.reset_states()
            assert_same(pair, batch)
        first, second = (pair.ours(TEXT)["elmo_representations"][0] for _ in range(2))
        assert torch.equal(first, second)

    def test_stateless_batches_leave_the_state_alone(self, elmo_pair):
        pair = elmo_pair()
        assert_same(pair, self.BATCHES[0])
        pair.ours._elmo_lstm._elmo_lstm.stateful = False
        pair.ours(self.BATCHES[1])
        pair.ours._elmo_lstm._elmo_lstm.stateful = True
        assert_same(pair, self.BATCHES[2])

    def test_training_and_evaluation_share_the_state(self, elmo_pair):
        pair = elmo_pair(requires_grad=True)
        for mode in (True, False, True):
            for elmo in pair:
                elmo.train(mode)
            assert_same(pair, self.BATCHES[0])

    def test_no_gradient_crosses_batches(self, elmo_pair):
        elmo = elmo_pair(requires_grad=True).ours
        for batch in self.BATCHES[:2]:  # a second backward over the first batch would raise
            elmo(batch)["elmo_representations"][0].sum().backward()

    def test_copies_have_their_own_state(self, elmo_pair):
        pair = elmo_pair()
        assert_same(pair, self.BATCHES[0])
        copied = copy.deepcopy(pair.ours)
        copied(self.BATCHES[1])
        assert_same(pair, self.BATCHES[2])


class TestInitialState:
    BATCHES = TestCarriedState.BATCHES

    def elmo(self, files_of, initial_state: str, size: str = "clips", **arguments: Any) -> Any:
        return Elmo(
            *files_of(size), 1, dropout=0.0, initial_state=initial_state, **arguments
        ).eval()

    @staticmethod
    def vectors(elmo: Any, ids: torch.Tensor) -> torch.Tensor:
        return elmo(ids)["elmo_representations"][0]

    @pytest.mark.parametrize("size", ["plain", "clips", "three layers"])
    @pytest.mark.parametrize("initial_state", ["settled", "zero"])
    def test_is_the_same_whatever_came_before(self, files_of, initial_state, size):
        elmo = self.elmo(files_of, initial_state, size)
        first = self.vectors(elmo, TEXT)
        for batch in self.BATCHES:
            self.vectors(elmo, batch)
        assert torch.equal(self.vectors(elmo, TEXT), first)
        assert torch.equal(self.vectors(self.elmo(files_of, initial_state, size), TEXT), first)

    @pytest.mark.parametrize("initial_state", ["settled", "zero"])
    def test_is_the_same_in_whatever_batch(self, files_of, initial_state):
        elmo = self.elmo(files_of, initial_state)
        together = self.vectors(elmo, TEXT)
        for row in range(len(TEXT)):
            alone = self.vectors(elmo, TEXT[row : row + 1])
            assert (alone - together[row]).abs().max() <= 1e-6
        turned = self.vectors(elmo, TEXT.flip(0)).flip(0)
        assert (turned - together).abs().max() <= 1e-6

    def test_zero_is_the_first_batch_of_the_original(self, elmo_pair, files_of):
        pair = elmo_pair("clips")
        elmo = self.elmo(files_of, "zero")
        elmo.load_state_dict(pair.original.state_dict())
        assert_same(Pair(elmo, pair.original), TEXT)

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

    @pytest.mark.parametrize("change", ["load_state_dict", "optimizer", "double"])
    def test_settled_follows_the_parameters(self, files_of, change):
        elmo = self.elmo(files_of, "settled", requires_grad=True)
        before = self.vectors(elmo, TEXT)
        if change == "load_state_dict":
            elmo.load_state_dict({k: 0.9 * v for k, v in elmo.state_dict().items()})
        elif change == "double":
            elmo.double()
        else:
            before.sum().backward()
            torch.optim.SGD(elmo.parameters(), lr=0.01).step()
        fresh = self.elmo(files_of, "settled").to(next(elmo.parameters()).dtype)
        fresh.load_state_dict(elmo.state_dict())
        # With and without gradient: not the same products.
        torch.testing.assert_close(
            self.vectors(elmo, TEXT), self.vectors(fresh, TEXT), atol=1e-6, rtol=0
        )

    def test_settled_is_computed_once(self, files_of):
        bilm = ElmoBiLm(*files_of(), initial_state="settled")
        bilm(TEXT)
        state = bilm.settled_state()
        bilm(TEXT)
        assert bilm.settled_state() is state

    @pytest.mark.parametrize("initial_state", ["settled", "zero"])
    def test_gradients_and_state_dict(self, elmo_pair, files_of, initial_state):
        elmo = self.elmo(files_of, initial_state, requires_grad=True)
        self.vectors(elmo, TEXT).sum().backward()
        assert all(p.grad is not None for p in elmo._elmo_lstm.parameters())
        assert set(elmo.state_dict()) == set(elmo_pair("clips").original.state_dict())

    @pytest.mark.parametrize("initial_state", ["settled", "zero"])
    def test_cached_words(self, files_of, initial_state):
        words = CACHED_WORDS
        elmo = self.elmo(files_of, initial_state, vocab_to_cache=words)
        ids, positions = cached_ids(), POSITIONS
        cached = elmo(ids, positions)["elmo_representations"][0]
        assert_close(cached, self.vectors(elmo, ids))

    def test_wrong_value(self, files_of):
        with pytest.raises(ConfigurationError, match="'warm'.*carried"):
            self.elmo(files_of, "warm")

    def test_of_a_module(self, files_of):
        bilm = ElmoBiLm(*files_of(), initial_state="zero")
        assert Elmo(None, None, 1, module=bilm)._elmo_lstm is bilm
        with pytest.raises(ConfigurationError, match="module"):
            Elmo(None, None, 1, module=bilm, initial_state="zero")
