"""
`Elmo` against AllenNLP's: on the same weights and inputs everything agrees.
"""

import copy
import io
import pickle
from typing import List

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.modules import elmo as ours
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from tests.support.elmo_pairs import (
    SIZES,
    TEXT,
    Pair,
    assert_close,
    assert_same,
    assert_same_gradients,
    assert_same_state_dict,
    bilms,
    random_ids,
)
from tests.support.originals import elmo as original


class TestBatchToIds:
    @pytest.mark.parametrize(
        "batch",
        [
            [["one"]],
            [["A", "sentence", "."], ["B"]],
            [["a", "b"], [], ["c"]],
            [["naïve", "ﬁsh", "日本語" * 10, "x" * 100, "é" * 40, "😀"]],
            [["<S>", "</S>", "<UNK>", "<s>"], ["tab\there", "no\u00a0break", "a b", "\u3000"]],
            [["same", "same"], ["same"]],
            [[str(i) for i in range(100)]],
        ],
    )
    def test_equals_the_original(self, batch: List[List[str]]):
        actual, expected = batch_to_ids(batch), original.batch_to_ids(batch)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


class TestElmo:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"representations": 3},
            {"representations": 2, "do_layer_norm": True},
            {"keep_sentence_boundaries": True},
            {"keep_sentence_boundaries": True, "do_layer_norm": True, "representations": 2},
        ],
        ids=str,
    )
    def test_equals_the_original(self, elmo_pair, size, arguments):
        pair = elmo_pair(size, **arguments)
        assert pair.ours.get_output_dim() == pair.original.get_output_dim()
        assert_same(pair, TEXT)
        assert_same(pair, random_ids(4, 1, 0, 7, timesteps=8, seed=1))

    @pytest.mark.parametrize("boundaries", [False, True])
    @pytest.mark.parametrize(
        "ids",
        [
            random_ids(1),
            random_ids(1, 1, 1),
            random_ids(5, timesteps=9),
            torch.zeros(2, 0, 50, dtype=torch.long),
            random_ids(0, timesteps=1),
            random_ids(0, 0, timesteps=3),
            random_ids(0, 2, 0),
            torch.full((1, 4, 50), 261),
            torch.ones(2, 3, 50, dtype=torch.long),
        ],
        ids=[
            "one word",
            "one-word rows",
            "padding",
            "no time",
            "nothing",
            "rows of nothing",
            "gaps",
            "261",
            "1",
        ],
    )
    def test_edges(self, elmo_pair, ids, boundaries):
        assert_same(elmo_pair(representations=2, keep_sentence_boundaries=boundaries), ids)

    @pytest.mark.parametrize("arguments", [{}, {"do_layer_norm": True, "representations": 2}])
    def test_4d(self, elmo_pair, arguments):
        ids = random_ids(3, 0, 5, 1, 0, 0).view(2, 3, 5, 50)
        pair = elmo_pair(**arguments)
        assert_same(pair, ids)
        assert_same(pair, ids.view(1, 2, 3, 5, 50))
        assert pair.ours(ids)["elmo_representations"][0].shape == (2, 3, 5, 16)

    @pytest.mark.parametrize("representations", [1, 2])
    def test_scalar_mix_parameters(self, elmo_pair, representations):
        parameters = [-9e10, 1.0, -9e10]
        pair = elmo_pair(representations=representations, scalar_mix_parameters=parameters)
        assert_same(pair, TEXT)
        assert_same_state_dict(pair)
        assert not pair.ours.scalar_mix_0.gamma.requires_grad

    @pytest.mark.parametrize("training", [True, False])
    def test_dropout(self, elmo_pair, training):
        pair = elmo_pair(dropout=0.5, representations=2)
        for elmo in pair:
            elmo.train(training)
        outputs = []
        for elmo in pair:
            torch.manual_seed(7)
            outputs.append(elmo(TEXT)["elmo_representations"])
        for a, e in zip(*outputs):
            assert_close(a, e)

    def test_double(self, elmo_pair):
        pair = elmo_pair()
        for elmo in pair:
            elmo.double()
        actual, expected = (elmo(TEXT)["elmo_representations"][0] for elmo in pair)
        assert actual.dtype == expected.dtype == torch.float64
        torch.testing.assert_close(actual, expected, atol=1e-9, rtol=1e-9)

    def test_module(self, files_of):
        class Module(torch.nn.Module):
            num_layers = 2

            def forward(self, inputs, word_inputs=None):
                layers = [inputs.float().sum(-1, keepdim=True) * i for i in (1, 2)]
                return {"activations": layers, "mask": (inputs > 0).any(-1)}

        ids = random_ids(4, 3)
        assert_same(
            Pair(*(m.Elmo(None, None, 2, dropout=0, module=Module()) for m in (ours, original))),
            ids,
        )
        bilm = bilms(*files_of())
        pair = Pair(
            Elmo(None, None, 1, dropout=0, module=bilm.ours),
            original.Elmo(None, None, 1, dropout=0, module=bilm.original),
        )
        assert_same(pair, ids)
        assert_same_state_dict(pair)
        # Either language model in the other's `Elmo`.
        for b in bilm:
            b._elmo_lstm.reset_states()
        mixed = Pair(
            Elmo(None, None, 1, dropout=0, module=bilm.original),
            original.Elmo(None, None, 1, dropout=0, module=bilm.ours),
        )
        assert_same(mixed, ids)

    @pytest.mark.parametrize(
        "setting",
        [
            {"options_file": "tiny"},
            {"requires_grad": True},
            {"initial_state": "zero"},
            {"precision": "int8"},
            {"max_cached_words": 1},
        ],
    )
    def test_settings_of_a_module(self, files_of, setting):
        with pytest.raises(ConfigurationError, match="module has its own"):
            Elmo(**{"options_file": None, **setting}, module=ElmoBiLm(*files_of()))

    def test_from_params(self, files_of):
        from allennlp.common import Params

        options_file, weight_file = files_of()
        params = {
            "options_file": options_file,
            "weight_file": weight_file,
            "num_output_representations": 2,
            "vocab_to_cache": ["a", "b"],
        }
        elmo = Elmo.from_params(Params(params))
        assert len(elmo(TEXT)["elmo_representations"]) == 2


class TestGradients:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("size", SIZES)
    def test_equal_the_originals(self, elmo_pair, size, dtype):
        pair = elmo_pair(size, representations=2, requires_grad=True)
        # The second batch starts from a state.
        for ids in (TEXT, random_ids(5, 2, 0, 1, seed=3)):
            for elmo in pair:
                elmo.to(dtype).zero_grad()
                generator = torch.Generator().manual_seed(0)
                loss = torch.zeros((), dtype=dtype)
                for output in elmo(ids)["elmo_representations"]:
                    loss += (torch.randn(output.shape, generator=generator) * output).sum()
                loss.backward()
            assert_same_gradients(pair)

    def test_requires_grad_flags(self, elmo_pair):
        for requires_grad in (True, False):
            flags = [
                {name: p.requires_grad for name, p in elmo.named_parameters()}
                for elmo in elmo_pair(requires_grad=requires_grad)
            ]
            assert flags[0] == flags[1]


class TestStateDict:
    @pytest.mark.parametrize("size", SIZES)
    def test_same_keys_and_values(self, elmo_pair, size):
        pair = elmo_pair(size, representations=2)
        assert_same_state_dict(pair)
        # The state of an optimizer goes by the parameters' order.
        names = [[name for name, _ in elmo.named_parameters()] for elmo in pair]
        assert names[0] == names[1]


class TestCopies:
    def save_and_load(self, module: torch.nn.Module) -> torch.nn.Module:
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    @pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
    @pytest.mark.parametrize("used", [False, True])
    def test_copies_compute_the_same(self, elmo_pair, way, used):
        pair = elmo_pair("three layers", representations=2, vocab_to_cache=["@@PADDING@@", "a"])
        if used:
            assert_same(pair, TEXT)
        copied = {
            "deepcopy": copy.deepcopy,
            "pickle": lambda module: pickle.loads(pickle.dumps(module)),
            "torch.save": self.save_and_load,
        }[way](pair.ours)
        for elmo in (copied, *pair):
            elmo._elmo_lstm._elmo_lstm.reset_states()
        assert_same(Pair(copied, pair.original), TEXT)


@pytest.mark.parametrize(
    "batch, message",
    [
        (["a", "b"], r"sentence 0 is the string 'a', .*list of words: \['a'\]"),
        (["A sentence"], r"words: \['A', 'sentence'\]"),
        ("A sentence", r"takes a list of sentences.*\[\['A', 'sentence'\]\]"),
        ([["fine"], "not"], "sentence 1 is the string 'not'"),
        ([["fine", 5]], "sentence 0 has the word 5, a int"),
        ([[["too", "deep"]]], r"sentence 0 has the word \['too', 'deep'\], a list"),
        ([[None]], "the word None"),
    ],
)
def test_strings_in_the_place_of_sentences(batch, message):
    with pytest.raises(ValueError, match=message):
        batch_to_ids(batch)


class TestSpeed:
    """What makes ELMo faster gives the same vectors."""

    SENTENCES = [["the", "cat", "sat", "there"], [], ["the", "dog"]]

    @pytest.mark.parametrize("do_layer_norm", [False, True])
    def test_embed_sentences_is_forward(self, files_of, do_layer_norm):
        elmo = Elmo(*files_of(), 2, dropout=0.0, do_layer_norm=do_layer_norm)
        expected = elmo(batch_to_ids(self.SENTENCES))
        elmo._elmo_lstm._elmo_lstm.reset_states()
        actual = elmo.embed_sentences(map(iter, self.SENTENCES))
        assert torch.equal(actual["mask"], expected["mask"])
        for pair in zip(actual["elmo_representations"], expected["elmo_representations"]):
            assert_close(*pair)

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_kept_words_are_the_computed_ones(self, files_of, requires_grad):
        arguments = {"dropout": 0.0, "requires_grad": requires_grad}
        keeping = Elmo(*files_of(), 1, **arguments)
        computing = Elmo(*files_of(), 1, max_cached_words=0, **arguments)
        for sentences in (self.SENTENCES, self.SENTENCES[:1], [["a", "new", "dog"]]):
            outputs = [
                elmo(batch_to_ids(sentences))["elmo_representations"][0]
                for elmo in (keeping, computing)
            ]
            assert_close(*outputs)
        assert outputs[0].requires_grad

    def test_precision(self, files_of):
        ids = batch_to_ids(self.SENTENCES)
        expected = Elmo(*files_of(), 1, dropout=0.0)(ids)["elmo_representations"][0]
        for precision in ("bfloat16", "int8"):
            elmo = Elmo(*files_of(), 1, dropout=0.0, precision=precision)
            actual = elmo(ids)["elmo_representations"][0]
            assert 0 < (actual - expected).norm() < 0.1 * expected.norm()

    def test_bad_precision(self, files_of):
        with pytest.raises(ConfigurationError, match="precision is 'float16'; it must be one of"):
            Elmo(*files_of(), 1, precision="float16")
        with pytest.raises(ConfigurationError, match="int8 has no gradient"):
            Elmo(*files_of(), 1, precision="int8", requires_grad=True)
