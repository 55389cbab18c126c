"""`ElmoBiLm` against AllenNLP's and bilm-tf's language model."""

import copy
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from allennlp_elmo_plugin.elmo.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm, padded_layers
from tests.support.bilm_tf import REFERENCE
from tests.support.elmo_pairs import (
    SIZES,
    TEXT,
    Pair,
    assert_close,
    assert_same,
    assert_same_gradients,
    make_pair,
    random_ids,
)
from tests.support.originals import elmo as original

BATCHES = [
    random_ids(5, 3, seed=1),
    random_ids(2, 6, 4, 1, seed=2),  # grows
    random_ids(3, 3, seed=3),  # shrinks: the other rows' states wait
    random_ids(0, 4, 0, seed=4),
    random_ids(2, 1, 3, 5, 4, seed=5),
    random_ids(0, timesteps=1),
    random_ids(1, 2, 3, 4, 5, seed=6),
]


@pytest.mark.parametrize("size", SIZES)
def test_equals_the_original(files_of, size):
    pair = make_pair(ElmoBiLm, original._ElmoBiLm, **files_of(size))
    assert pair.ours.num_layers == pair.original.num_layers
    for ids in (TEXT, random_ids(3, 9, 1, 5, 0)):
        # Word ids without a cache are of no interest, whatever their shape.
        assert_same(pair, ids, ids)


def test_equals_bilm_tf():
    """Numbers of the original trainer's `BidirectionalLanguageModel`."""
    expected = np.load(REFERENCE / "inference.npz")
    checkpoint = REFERENCE / "checkpoint"
    bilm = ElmoBiLm(str(checkpoint / "options_inference.json"), str(checkpoint / "weights.hdf5"))
    sentences = json.loads(str(expected["meta/sentences"]))
    words = batch_to_ids(sentences)
    for call, rows in (("call1", 4), ("call2", 4), ("call3", 2)):
        output = bilm(words[:rows])
        mask = torch.from_numpy(expected[f"{call}/mask"])
        assert torch.equal(output["mask"][:, 2:][:, : mask.shape[1]], mask)
        # (rows, layers, timesteps, dim)
        layers = torch.stack(output["activations"], dim=1)[:, :, 1:-1]
        layers = layers[:, :, : mask.shape[1]] * mask[:, None, :, None]
        lm_embeddings = torch.from_numpy(expected[f"{call}/lm_embeddings"])
        assert_close(layers, lm_embeddings * mask[:, None, :, None])


CACHED_WORDS = ["@@PADDING@@", "the", "old", "mill", "naïve", "x" * 60, "<S>", "."]
POSITIONS = torch.tensor([[1, 2, 3, 7], [4, 0, 0, 0], [5, 6, 0, 0]])
CACHED_IDS = batch_to_ids([[CACHED_WORDS[i] for i in row if i] for row in POSITIONS])


@pytest.mark.parametrize("arguments", [{"do_layer_norm": True}, {"requires_grad": True}])
def test_cached_words_equal_the_originals(elmo_pair, arguments, caplog):
    pair = elmo_pair("wide filters", vocab_to_cache=CACHED_WORDS, **arguments)
    # Trained or not, these vectors stay.
    assert ("vocab_to_cache keeps" in caplog.text) == ("requires_grad" in arguments)
    for _ in range(2):
        assert_same(pair, CACHED_IDS, POSITIONS)
    for elmo in pair:
        elmo(CACHED_IDS, POSITIONS)["elmo_representations"][0].pow(2).sum().backward()
    assert_same_gradients(pair)
    # Where all words are in the cache, what stands in for the characters is not read.
    assert_same(pair, POSITIONS, POSITIONS)
    with pytest.raises(ValueError, match="the model reads character ids of shape"):
        pair.ours(POSITIONS, POSITIONS + 100 * (POSITIONS == 7))
    # A word that is not in the cache is computed from its characters.
    ids = random_ids(4, 1, 2)
    for position in (len(CACHED_WORDS), -1):
        positions = POSITIONS.clone()
        positions[0, 1] = position
        assert_same(pair, ids, positions)
        assert_same(pair, ids.view(3, 1, 4, 50), positions.view(3, 1, 4))


def test_carried_states_by_allennlps_name(elmo_pair):
    """Some programs take them for vectors of sentences, set or edit them, or reset rows."""
    first, second = elmo_pair("three layers"), elmo_pair("three layers")
    lstms, other_lstms = ([elmo._elmo_lstm._elmo_lstm for elmo in pair] for pair in (first, second))
    assert [lstm._states for lstm in lstms] == [None, None]
    for batch in BATCHES[:4]:
        assert_same(first, batch)
        assert_close(*(list(lstm._states) for lstm in lstms))
    for lstm, other in zip(lstms, other_lstms):
        other._states = lstm._states
    assert_same(second, BATCHES[4])
    for other in other_lstms:
        other.reset_states(torch.tensor([True, False, True, False, False]))
    assert_same(second, BATCHES[4])
    for other in other_lstms:
        other._states[1][:, 1:3] = 0.5
        with pytest.raises(TypeError):
            other._states[0] = torch.zeros_like(other._states[0])
    assert_same(second, BATCHES[4])
    for other in other_lstms:
        other._states = None
    assert_same(second, BATCHES[0])


@pytest.mark.parametrize("name", ["_elmo_lstm", "_elmo_lstm._elmo_lstm", "scalar_mix_0"])
def test_a_forward_of_its_own_is_called(elmo_pair, name):
    pair = elmo_pair()
    for elmo in pair:
        module = elmo.get_submodule(name)

        def forward(inputs, mask=None, *, original=module.forward):
            output = original(inputs, mask)
            return tree_map(lambda x: 2 * x if x.is_floating_point() else x, output)

        module.forward = forward
    for batch in BATCHES:
        assert_same(pair, batch)
    pair.ours.bilm.lstm.reset_states()
    words = pair.ours.embed_sentences([["a", "cat"]])
    pair.ours.bilm.lstm.reset_states()
    assert_close(words, pair.ours(batch_to_ids([["a", "cat"]])))


def test_a_hook_on_the_lstm_gets_what_allennlps_does(elmo_pair, files_of):
    pair, seen = elmo_pair(), []
    for elmo in pair:
        elmo._elmo_lstm._elmo_lstm.register_forward_hook(lambda *call: seen.append(call[1:]))
        elmo._elmo_lstm._elmo_lstm.register_forward_hook(lambda *call: call[2] / 2)
    for batch in BATCHES:
        assert_same(pair, batch)
        (ours, output), (its, its_output) = seen
        is_token = its[1].unsqueeze(-1)  # (batch_size, timesteps + 2, 1)
        assert_close([ours[0], ours[1], output], [its[0] * is_token, its[1], its_output])
        seen.clear()
    # From the settled state, too
    settled = ElmoBiLm(**files_of(), initial_state="settled")
    expected = settled(TEXT)["activations"]
    settled.lstm.register_forward_hook(lambda *call: None)
    assert_close(settled(TEXT)["activations"], expected)


def test_another_lstm_is_called(elmo_pair):
    pair = elmo_pair(keep_sentence_boundaries=True)
    other = elmo_pair("all positions").original._elmo_lstm._elmo_lstm
    for elmo in pair:
        elmo._elmo_lstm._elmo_lstm = copy.deepcopy(other)
    for batch in BATCHES:
        assert_same(pair, batch)


def elmo_from(files, initial_state, **arguments):
    return Elmo(**files, dropout=0.0, initial_state=initial_state, **arguments).eval()


def vectors(elmo, ids=TEXT):
    return elmo(ids)["elmo_representations"][0]


@pytest.mark.parametrize("initial_state", ["settled", "zero"])
def test_initial_state_is_the_same_whatever_came_before_and_in_any_batch(files_of, initial_state):
    elmo = elmo_from(files_of("clips"), initial_state, requires_grad=True)
    first = vectors(elmo)
    for batch in BATCHES:
        vectors(elmo, batch)
    assert torch.equal(vectors(elmo), first)
    for row in range(len(TEXT)):
        assert (vectors(elmo, TEXT[row : row + 1]) - first[row]).abs().max() <= 1e-6
    first.sum().backward()
    assert all(p.grad is not None for p in elmo._elmo_lstm.parameters())


def test_settled_is_the_original_after_empty_sentences(elmo_pair, files_of):
    its = elmo_pair("clips", keep_sentence_boundaries=True).original
    settled, zero = (
        elmo_from(files_of("clips"), state, keep_sentence_boundaries=True)
        for state in ("settled", "zero")
    )
    vectors(settled)  # with other parameters
    for elmo in (settled, zero):
        elmo.load_state_dict({k: 0.9 * v for k, v in elmo.state_dict().items()})
    its.load_state_dict(settled.state_dict())
    for _ in range(100):
        its(torch.zeros(len(TEXT), 1, 50, dtype=torch.long))
    assert_same(Pair(settled, its), TEXT)
    assert (vectors(zero) - vectors(settled)).abs().max() > 1e-2


def test_a_hook_on_the_encoder_counts_for_words_and_the_settled_state(files_of):
    def half(module, inputs, output):
        return {**output, "token_embedding": output["token_embedding"] / 2}

    bilm = ElmoBiLm(**files_of(), initial_state="settled")
    sentences = [["a", "cat"], [], ["the"]]
    expected = bilm(batch_to_ids(sentences))["activations"]
    assert bilm.settled_state() is bilm.settled_state()  # computed once
    handle = bilm.token_layer.register_forward_hook(half)
    padded, output = bilm(batch_to_ids(sentences)), bilm.run_sentences(sentences)
    assert_close(2 * padded["activations"][0], expected[0])
    assert_close(padded_layers(output), padded)
    handle.remove()
    assert torch.equal(bilm(batch_to_ids(sentences))["activations"][2], expected[2])


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_of_checkpoints_from_the_settled_state(files_of, use_reentrant):
    grads = []
    for checkpointed in (False, True):
        bilm = ElmoBiLm(**files_of(), initial_state="settled", requires_grad=True)

        def run(zero, bilm=bilm):
            return bilm(TEXT)["activations"][2] + zero

        call = partial(checkpoint, run, use_reentrant=use_reentrant) if checkpointed else run
        call(torch.zeros((), requires_grad=True)).square().sum().backward()
        grads.append([parameter.grad for parameter in bilm.parameters()])
    assert_close(*grads)


def test_a_hook_on_the_encoder_and_the_settled_state_in_inference_mode(files_of):
    bilm = ElmoBiLm(**files_of(), initial_state="settled", requires_grad=True)
    with torch.no_grad():
        expected = bilm(TEXT)
    bilm.token_layer.register_forward_hook(lambda *call: None)
    with torch.inference_mode():
        assert_close(bilm(TEXT), expected)


def test_fingerprint_is_that_of_the_layers(files_of):
    expected = ElmoBiLm(**files_of()).fingerprint()
    assert ElmoBiLm(**files_of(), precision="int8").fingerprint() != expected
    bilm = ElmoBiLm(**files_of())
    options = bilm.options
    for changed, is_same in (({"training": {"n_epochs": 3}}, True), ({"cell_clip": 2.0}, False)):
        bilm.options = replace(options, **changed)
        assert (bilm.fingerprint() == expected) == is_same
    bilm.options = options
    with torch.no_grad():
        bilm.lstm.backward_layers[1].state_linearity.bias[3] += 1e-3
    assert bilm.fingerprint() != expected
