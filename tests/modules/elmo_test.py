"""
Ours against AllenNLP's own classes: on the same weights and inputs everything must agree.
"""

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import h5py
import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.modules import elmo as ours
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"

SIZES: Dict[str, Dict[str, Any]] = {
    "plain": {},
    "tanh": {"activation": "tanh", "n_highway": 2},
    "one layer": {"n_layers": 1},
    "three layers": {"n_layers": 3, "activation": "tanh"},
    # Wider than the seven that a word's marks and one more position allow without care.
    "wide filters": {"filters": [(1, 4), (2, 4), (7, 8), (9, 5), (12, 3)], "n_highway": 2},
    "one filter": {"filters": [(5, 6)], "n_highway": 0},
    "all positions": {"filters": [(50, 6), (3, 4)]},
    # Both clips bind at most steps; see `test_clips_bind`.
    "clips": {
        "lstm_dim": 48,
        "projection_dim": 24,
        "filters": [(1, 8), (2, 8), (3, 16)],
        "cell_clip": 0.4,
        "proj_clip": 0.15,
        "recurrent_scale": 0.6,
    },
}


class Pair(NamedTuple):
    ours: Any
    original: Any


@pytest.fixture(scope="module")
def files_of(tmp_path_factory):
    """Options and weights of one of the `SIZES`, written once."""
    written: Dict[str, Tuple[str, str]] = {}

    def files(size: str = "plain") -> Tuple[str, str]:
        if size not in written:
            directory = tmp_path_factory.mktemp("elmo")
            written[size] = write_random_elmo(directory, seed=len(size), **SIZES[size])
        return written[size]

    return files


@pytest.fixture
def elmo_pair(files_of):
    """Our `Elmo` and AllenNLP's, of the same weights, the scalar mixes included."""

    def make(size: str = "plain", representations: int = 1, **arguments: Any) -> Pair:
        arguments = {"dropout": 0.0, **arguments}
        pair = Pair(
            *(
                module.Elmo(*files_of(size), representations, **arguments)
                for module in (ours, original)
            )
        )
        if arguments.get("scalar_mix_parameters") is None:
            torch.manual_seed(1)
            for name, parameter in pair.original.named_parameters():
                if name.startswith("scalar_mix"):
                    parameter.data.normal_()
                    dict(pair.ours.named_parameters())[name].data.copy_(parameter.data)
        return pair

    return make


def random_ids(*lengths: int, timesteps: Optional[int] = None, seed: int = 0) -> torch.Tensor:
    """
    Rows of any character ids at all, 0 and 261 in the middle of words too; a row is padded from its
    length on. Shape `(len(lengths), timesteps, 50)`.
    """
    generator = torch.Generator().manual_seed(seed)
    timesteps = max(lengths) if timesteps is None else timesteps
    ids = torch.randint(0, 262, (len(lengths), timesteps, 50), generator=generator)
    # Zeros are more frequent than chance makes them.
    ids[torch.rand(ids.shape, generator=generator) < 0.05] = 0
    for row, length in zip(ids, lengths):
        row[:, 0].clamp_(min=1)
        row[length:] = 0
    return ids


def text_ids(*sentences: str) -> torch.Tensor:
    return original.batch_to_ids([sentence.split() for sentence in sentences])


TEXT = text_ids(
    "Alice counted the naïve ﬁsh in the old mill again , and again .",
    "Yes",
    f"{'long' * 20} 日本語日本語日本語日本語日本語日本語 <S> </S> <UNK>",
    "",
    "the the the",
)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def assert_same(pair: Pair, *inputs: Any) -> None:
    with torch.no_grad():
        actual, expected = (elmo(*inputs) for elmo in pair)
    assert set(actual) == set(expected) == {"elmo_representations", "mask"}
    assert torch.equal(actual["mask"], expected["mask"])
    assert actual["mask"].dtype == expected["mask"].dtype
    assert len(actual["elmo_representations"]) == len(expected["elmo_representations"])
    for a, e in zip(actual["elmo_representations"], expected["elmo_representations"]):
        assert_close(a, e)


def assert_same_layers(actual: Dict[str, Any], expected: Dict[str, Any]) -> None:
    assert torch.equal(actual["mask"], expected["mask"])
    assert len(actual["activations"]) == len(expected["activations"])
    for a, e in zip(actual["activations"], expected["activations"]):
        assert_close(a, e)


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
        actual, expected = ours.batch_to_ids(batch), original.batch_to_ids(batch)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


class TestCharacterEncoder:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("ids", [TEXT, random_ids(7, 0, 3, 1, timesteps=8)])
    def test_equals_the_original(self, files_of, size, ids):
        pair = Pair(*(m._ElmoCharacterEncoder(*files_of(size)) for m in (ours, original)))
        assert pair.ours.get_output_dim() == pair.original.get_output_dim()
        actual, expected = pair.ours(ids), pair.original(ids)
        assert set(actual) == set(expected) == {"mask", "token_embedding"}
        assert torch.equal(actual["mask"], expected["mask"])
        # What stands at padding is masked by all users, and differs between AllenNLP's own ways.
        valid = expected["mask"].unsqueeze(-1)
        assert_close(actual["token_embedding"] * valid, expected["token_embedding"] * valid)

    def test_state_dict(self, files_of):
        pair = Pair(*(m._ElmoCharacterEncoder(*files_of("wide filters")) for m in (ours, original)))
        assert_same_state_dict(pair)


class TestBiLm:
    @pytest.mark.parametrize("size", SIZES)
    def test_equals_the_original(self, files_of, size):
        pair = Pair(*(m._ElmoBiLm(*files_of(size)) for m in (ours, original)))
        assert pair.ours.num_layers == pair.original.num_layers
        assert pair.ours.get_output_dim() == pair.original.get_output_dim()
        for ids in (TEXT, random_ids(3, 9, 1, 5, 0)):
            assert_same_layers(pair.ours(ids), pair.original(ids))

    @pytest.mark.parametrize("sizes", [{"filters": [(1, 3), (3, 5)]}, {"lstm_dim": 8}])
    def test_projections_to_the_same_size(self, tmp_path, sizes):
        """bilm-tf has no projection where sizes agree; AllenNLP always reads one."""
        files = write_random_elmo(tmp_path, projection_dim=8, **sizes)
        pair = Pair(*(m._ElmoBiLm(*files) for m in (ours, original)))
        assert_same_layers(pair.ours(TEXT), pair.original(TEXT))
        assert_same_state_dict(pair)

    def test_clips_bind(self, files_of, tmp_path):
        """Without the clips the numbers are others: the tests above see that they are applied."""
        options = json.loads(Path(files_of("clips")[0]).read_text(encoding="utf-8"))
        layers = []
        for clip in (None, "cell_clip", "proj_clip"):
            changed = copy.deepcopy(options)
            if clip is not None:
                changed["lstm"][clip] = 10.0
            path = tmp_path / f"{clip}.json"
            path.write_text(json.dumps(changed), encoding="utf-8")
            layers.append(ours._ElmoBiLm(str(path), files_of("clips")[1])(TEXT)["activations"][-1])
        assert (layers[0] - layers[1]).abs().max() > 1e-2
        assert (layers[0] - layers[2]).abs().max() > 1e-2

    def test_equals_bilm_tf(self):
        """Numbers of the original trainer's `BidirectionalLanguageModel`."""
        expected = np.load(REFERENCE / "inference.npz")
        checkpoint = REFERENCE / "checkpoint"
        bilm = ours._ElmoBiLm(
            str(checkpoint / "options_inference.json"), str(checkpoint / "weights.hdf5")
        )
        sentences = json.loads(str(expected["meta/sentences"]))
        # bilm-tf's ids have the boundaries in them.
        ids = torch.from_numpy(expected["char_ids"])
        words = ours.batch_to_ids(sentences)
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
        pair = Pair(*(m._ElmoBiLm(*files_of(), **arguments) for m in (ours, original)))
        assert_same_state_dict(pair)


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

    def test_ids_of_other_memory_layout(self, elmo_pair):
        ids = random_ids(5, 3, 4).transpose(0, 1).contiguous().transpose(0, 1)
        assert not ids.is_contiguous()
        assert_same(elmo_pair(), ids)

    def test_inputs_are_not_changed(self, elmo_pair):
        ids = random_ids(5, 3)
        before = ids.clone()
        elmo_pair().ours(ids)
        assert torch.equal(ids, before)

    @pytest.mark.parametrize("representations", [1, 2])
    def test_scalar_mix_parameters(self, elmo_pair, representations):
        parameters = [-9e10, 1.0, -9e10]
        pair = elmo_pair(representations=representations, scalar_mix_parameters=parameters)
        assert_same(pair, TEXT)
        assert_same_state_dict(pair)
        assert not pair.ours.scalar_mix_0.gamma.requires_grad

    def test_wrong_number_of_scalar_mix_parameters(self, files_of):
        with pytest.raises(ConfigurationError):
            ours.Elmo(*files_of(), 1, scalar_mix_parameters=[1.0])

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
        bilm = Pair(*(m._ElmoBiLm(*files_of()) for m in (ours, original)))
        pair = Pair(
            ours.Elmo(None, None, 1, dropout=0, module=bilm.ours),
            original.Elmo(None, None, 1, dropout=0, module=bilm.original),
        )
        assert_same(pair, ids)
        assert_same_state_dict(pair)
        # Either language model in the other's `Elmo`.
        for b in bilm:
            b._elmo_lstm.reset_states()
        mixed = Pair(
            ours.Elmo(None, None, 1, dropout=0, module=bilm.original),
            original.Elmo(None, None, 1, dropout=0, module=bilm.ours),
        )
        assert_same(mixed, ids)

    def test_module_and_files_contradict_each_other(self, files_of):
        with pytest.raises(ConfigurationError, match="module"):
            ours.Elmo(*files_of(), 1, module=torch.nn.Module())

    def test_from_params(self, files_of):
        from allennlp.common import Params

        options_file, weight_file = files_of()
        params = {
            "options_file": options_file,
            "weight_file": weight_file,
            "num_output_representations": 2,
            "vocab_to_cache": ["a", "b"],
        }
        elmo = ours.Elmo.from_params(Params(params))
        assert len(elmo(TEXT)["elmo_representations"]) == 2


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
            self.assert_same_gradients(pair)

    @pytest.mark.parametrize("do_layer_norm", [False, True])
    def test_of_frozen_model_reach_the_mix_alone(self, elmo_pair, do_layer_norm):
        pair = elmo_pair(do_layer_norm=do_layer_norm)
        for elmo in pair:
            elmo(TEXT)["elmo_representations"][0].pow(2).sum().backward()
        self.assert_same_gradients(pair)
        for name, parameter in pair.ours.named_parameters():
            assert (parameter.grad is not None) == name.startswith("scalar_mix"), name

    def test_requires_grad_flags(self, elmo_pair):
        for requires_grad in (True, False):
            flags = [
                {name: p.requires_grad for name, p in elmo.named_parameters()}
                for elmo in elmo_pair(requires_grad=requires_grad)
            ]
            assert flags[0] == flags[1]

    def test_parameters_unfrozen_later(self, elmo_pair):
        pair = elmo_pair()
        for elmo in pair:
            elmo.requires_grad_(True)
            elmo(TEXT)["elmo_representations"][0].pow(2).sum().backward()
        self.assert_same_gradients(pair)

    @staticmethod
    def assert_same_gradients(pair: Pair) -> None:
        expected = {name: p.grad for name, p in pair.original.named_parameters()}
        actual = {name: p.grad for name, p in pair.ours.named_parameters()}
        assert set(actual) == set(expected)
        for name, gradient in expected.items():
            assert (actual[name] is None) == (gradient is None), name
            if gradient is not None:
                # Not less than the terms of the sums, which float32 rounds.
                scale = gradient.abs().max().clamp(min=1.0).item()
                tolerance = 1e-5 if gradient.dtype == torch.float32 else 1e-10
                difference = (actual[name] - gradient).abs().max().item()
                assert difference <= tolerance * scale, (name, difference, scale)

    def test_an_optimizer_step_is_seen(self, elmo_pair):
        """Nothing computed from the parameters may outlive a change of them."""
        pair = elmo_pair("wide filters", requires_grad=True)
        for elmo in pair:
            elmo._elmo_lstm._elmo_lstm.stateful = False
        assert_same(pair, TEXT)
        for elmo in pair:
            optimizer = torch.optim.SGD(elmo.parameters(), lr=0.01)
            elmo(TEXT)["elmo_representations"][0].sum().backward()
            optimizer.step()
        assert_same(pair, TEXT)
        with torch.no_grad():
            for elmo in pair:
                for parameter in elmo.parameters():
                    parameter.data.mul_(0.9)
        assert_same(pair, TEXT)


class TestCachedWords:
    WORDS = ["@@PADDING@@", "the", "old", "mill", "naïve", "x" * 60, "<S>", "."]
    POSITIONS = torch.tensor([[1, 2, 3, 7], [4, 0, 0, 0], [5, 6, 0, 0]])

    def ids(self) -> torch.Tensor:
        return original.batch_to_ids(
            [[self.WORDS[i] for i in row if i > 0] for row in self.POSITIONS.tolist()]
        )

    def pair(self, elmo_pair, size="plain", **arguments) -> Pair:
        return elmo_pair(size, vocab_to_cache=self.WORDS, **arguments)

    @pytest.mark.parametrize("size", ["plain", "wide filters", "clips"])
    @pytest.mark.parametrize("arguments", [{}, {"representations": 2, "do_layer_norm": True}])
    def test_equals_the_original(self, elmo_pair, size, arguments):
        pair = self.pair(elmo_pair, size, **arguments)
        for _ in range(2):
            assert_same(pair, self.ids(), self.POSITIONS)

    def test_equals_characters(self, elmo_pair):
        pair = self.pair(elmo_pair)
        with_cache = pair.ours(self.ids(), self.POSITIONS)
        pair.ours._elmo_lstm._elmo_lstm.reset_states()
        without = pair.ours(self.ids())
        assert torch.equal(with_cache["mask"], without["mask"])
        assert_close(with_cache["elmo_representations"][0], without["elmo_representations"][0])

    def test_3d_word_inputs(self, elmo_pair):
        pair = self.pair(elmo_pair)
        positions = torch.stack([self.POSITIONS, self.POSITIONS.flip(0)])
        ids = torch.stack([self.ids(), self.ids().flip(0)])
        assert_same(pair, ids, positions)

    def test_characters_without_word_inputs(self, elmo_pair):
        assert_same(self.pair(elmo_pair), self.ids())

    @pytest.mark.parametrize("position", [len(WORDS), 1000, -1])
    def test_words_not_in_the_cache_are_computed_from_characters(self, elmo_pair, position):
        pair = self.pair(elmo_pair)
        positions = self.POSITIONS.clone()
        positions[0, 1] = position
        ids = random_ids(4, 1, 2)
        assert_same(pair, ids, positions)
        assert_same(pair, ids.view(3, 1, 4, 50), positions.view(3, 1, 4))

    def test_no_timestep(self, elmo_pair):
        ids, positions = (torch.zeros(*shape, dtype=torch.long) for shape in ((2, 0, 50), (2, 0)))
        assert_same(self.pair(elmo_pair), ids, positions)

    def test_word_inputs_without_a_cache_are_ignored(self, elmo_pair, caplog):
        assert_same(elmo_pair(), self.ids(), self.POSITIONS)
        loggers = {record.name for record in caplog.records if record.levelname == "WARNING"}
        assert loggers == {module.__name__ for module in (ours, original)}

    def test_more_words_than_one_batch_of_them(self, elmo_pair):
        words = ["@@PADDING@@", *(f"word{i}" for i in range(1100))]
        pair = elmo_pair(vocab_to_cache=words)
        positions = torch.tensor([[1, 500, 1023, 1024, 1025, 1100]])
        ids = original.batch_to_ids([[words[i] for i in positions[0]]])
        assert_same(pair, ids, positions)
        weights = (e._elmo_lstm._word_embedding.weight for e in pair)
        assert_close(*weights)

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_state_dict(self, elmo_pair, requires_grad):
        pair = self.pair(elmo_pair, requires_grad=requires_grad)
        assert_same_state_dict(pair)
        name = "_elmo_lstm._word_embedding.weight"
        assert dict(pair.ours.named_parameters())[name].requires_grad is requires_grad

    def test_gradients(self, elmo_pair):
        pair = self.pair(elmo_pair, requires_grad=True)
        for elmo in pair:
            elmo(self.ids(), self.POSITIONS)["elmo_representations"][0].pow(2).sum().backward()
        TestGradients.assert_same_gradients(pair)

    def test_cache_made_later(self, elmo_pair):
        pair = elmo_pair()
        for elmo in pair:
            elmo._elmo_lstm.create_cached_cnn_embeddings(self.WORDS)
            elmo._has_cached_vocab = True
        assert_same(pair, self.ids(), self.POSITIONS)
        for name in ("_bos_embedding", "_eos_embedding"):
            assert_close(*(getattr(elmo._elmo_lstm, name) for elmo in pair))


def assert_same_state_dict(pair: Pair) -> None:
    actual, expected = (module.state_dict() for module in pair)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value)
    pair.ours.load_state_dict(expected, strict=True)
    pair.original.load_state_dict(actual, strict=True)


class TestStateDict:
    @pytest.mark.parametrize("size", SIZES)
    def test_same_keys_and_values(self, elmo_pair, size):
        pair = elmo_pair(size, representations=2)
        assert_same_state_dict(pair)
        # The state of an optimizer goes by the parameters' order.
        names = [[name for name, _ in elmo.named_parameters()] for elmo in pair]
        assert names[0] == names[1]

    @pytest.mark.parametrize("to_ours", [True, False])
    def test_loaded_weights_are_used(self, elmo_pair, to_ours):
        """The weights of one in the other, after each has computed with other weights."""
        pair = elmo_pair("wide filters", requires_grad=True)
        source, target = (pair.original, pair.ours) if to_ours else pair
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
        target(TEXT)
        target.load_state_dict(source.state_dict(), strict=True)
        target._elmo_lstm._elmo_lstm.reset_states()
        assert_same(pair, TEXT)

    def test_state_does_not_enter(self, elmo_pair):
        pair = elmo_pair()
        before = set(pair.ours.state_dict())
        pair.ours(TEXT)
        assert set(pair.ours.state_dict()) == before


class TestCopies:
    def save_and_load(self, module: torch.nn.Module) -> torch.nn.Module:
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        if torch.__version__ < "1.13":
            return torch.load(buffer)
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

    def test_a_copy_is_independent(self, elmo_pair):
        pair = elmo_pair("wide filters")
        copied = copy.deepcopy(pair.ours)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.zero_()
        copied(TEXT)
        assert_same(pair, TEXT)


def _naive_layers(weight_file: str, vectors: np.ndarray, n_layers: int) -> np.ndarray:
    """The LSTM layers of a sentence, as the published layout has them, without skip connections."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    layers: List[List[np.ndarray]] = [[] for _ in range(n_layers)]
    with h5py.File(weight_file, "r") as file:
        for direction in range(2):
            inputs = vectors if direction == 0 else vectors[::-1]
            for layer in range(n_layers):
                group = file[f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"]
                state = np.zeros(group["W_P_0"].shape[1])
                cell = np.zeros(group["W_P_0"].shape[0])
                outputs = []
                for vector in inputs:
                    gates = np.concatenate([vector, state]) @ group["W_0"][...] + group["B"][...]
                    i, j, f, o = np.split(gates, 4)
                    cell = np.clip(sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j), -3, 3)
                    state = np.clip((sigmoid(o) * np.tanh(cell)) @ group["W_P_0"][...], -3, 3)
                    outputs.append(state)
                inputs = np.stack(outputs)
                layers[layer].append(inputs if direction == 0 else inputs[::-1])
    return np.stack([np.concatenate(each, 1) for each in layers])


@pytest.mark.parametrize("key", ["missing", "false"])
def test_without_skip_connections(key, files_of, tmp_path):
    """AllenNLP's classes refuse such models; bilm-tf's default is to have none."""
    options_file, weight_file = files_of("three layers")
    options = json.loads(Path(options_file).read_text(encoding="utf-8"))
    options["lstm"]["use_skip_connections"] = False
    if key == "missing":
        del options["lstm"]["use_skip_connections"]
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options), encoding="utf-8")
    with pytest.raises((ConfigurationError, KeyError)):
        original._ElmoBiLm(str(path), weight_file)
    model = ours._ElmoBiLm(str(path), weight_file)
    with torch.no_grad():
        found = model(ours.batch_to_ids([["Three", "naïve", "tokens"]]))["activations"]
    vectors = found[0][0, :, : found[0].size(-1) // 2].double().numpy()
    expected = _naive_layers(weight_file, vectors, 3)
    assert len(found) == 4
    for layer, values in zip(found[1:], expected):
        np.testing.assert_allclose(layer[0], values, atol=1e-5)


class TestOtherWidthsOfWords:
    """Models that were trained with another `max_characters_per_token` than the indexer's 50."""

    WORDS = ["a", "seven77", "eight888", "nine99999", "ten1010101", "naïïïïïïïïve", "", "x" * 80]

    @pytest.fixture
    def files(self, tmp_path):
        def write(max_characters: int) -> Tuple[str, str]:
            files = write_random_elmo(tmp_path, filters=[(1, 4), (3, 6), (5, 6)])
            options = json.loads(Path(files[0]).read_text(encoding="utf-8"))
            options["char_cnn"]["max_characters_per_token"] = max_characters
            Path(files[0]).write_text(json.dumps(options), encoding="utf-8")
            return files

        return write

    def test_shorter_words_are_cut_as_in_training(self, files):
        sentences = [self.WORDS[:6], self.WORDS[6:]]
        table = CharacterTable(10)
        expected = torch.from_numpy(sentences_to_character_ids(sentences, table))
        found = ours._fit_width(ours.batch_to_ids(sentences), 10)
        assert torch.equal(found, expected)
        paths = files(10)
        wide, narrow = (
            ours.Elmo(*paths, 1, dropout=0.0)(ids)["elmo_representations"][0]
            for ids in (ours.batch_to_ids(sentences), expected)
        )
        assert torch.equal(wide, narrow)
        # The embedder and the cache of words use the model's own width.
        embedder = ElmoEmbedder(*paths, initial_state="carried")
        layers = embedder.embed_batch(sentences)
        mix = np.mean(layers[0], axis=0)
        np.testing.assert_allclose(mix, narrow[0].detach(), atol=1e-5)
        cached = ElmoEmbedder(*paths, vocab_to_cache=self.WORDS[:6])
        np.testing.assert_allclose(
            cached.embed_sentence(sentences[0]),
            ElmoEmbedder(*paths).embed_sentence(sentences[0]),
            atol=1e-5,
        )
        encoder = ours._ElmoCharacterEncoder(*paths)
        assert torch.equal(
            encoder(ours.batch_to_ids(sentences))["token_embedding"],
            encoder(expected)["token_embedding"],
        )

    def test_longer_words_need_ids_of_their_width(self, files):
        paths = files(60)
        with pytest.raises(ConfigurationError, match="words of 60 characters .* always give 50"):
            ours.Elmo(*paths, 1)(ours.batch_to_ids([["word"]]))
        long = "x" * 52
        layers = ElmoEmbedder(*paths, initial_state="carried").embed_batch(
            [[long], [long[:-1] + "y"]]
        )
        # With 50 characters the two would be one.
        assert np.abs(layers[0][0] - layers[1][0]).max() > 1e-3
        ids = torch.from_numpy(sentences_to_character_ids([[long]], CharacterTable(60)))
        found = ours.Elmo(*paths, 1, dropout=0.0)(ids)["elmo_representations"][0]
        np.testing.assert_allclose(np.mean(layers[0], axis=0), found[0].detach(), atol=1e-5)


class TestInitialState:
    BATCHES = TestCarriedState.BATCHES

    def elmo(self, files_of, initial_state: str, size: str = "clips", **arguments: Any) -> Any:
        return ours.Elmo(
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
        bilm = ours._ElmoBiLm(*files_of(), initial_state="settled")
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
        words = TestCachedWords.WORDS
        elmo = self.elmo(files_of, initial_state, vocab_to_cache=words)
        ids, positions = TestCachedWords().ids(), TestCachedWords.POSITIONS
        cached = elmo(ids, positions)["elmo_representations"][0]
        assert_close(cached, self.vectors(elmo, ids))

    def test_wrong_value(self, files_of):
        with pytest.raises(ConfigurationError, match="'warm'.*carried"):
            self.elmo(files_of, "warm")

    def test_of_a_module(self, files_of):
        bilm = ours._ElmoBiLm(*files_of(), initial_state="zero")
        assert ours.Elmo(None, None, 1, module=bilm)._elmo_lstm is bilm
        with pytest.raises(ConfigurationError, match="module"):
            ours.Elmo(None, None, 1, module=bilm, initial_state="zero")


class TestBadInput:
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
    def test_batch_to_ids(self, batch, message):
        with pytest.raises(ConfigurationError, match=message):
            ours.batch_to_ids(batch)

    @pytest.mark.parametrize("class_name", ["Elmo", "_ElmoBiLm", "_ElmoCharacterEncoder"])
    @pytest.mark.parametrize(
        "ids, message",
        [
            (torch.ones(2, 3, 49, dtype=torch.long), "of 50 characters .* but got 49"),
            (torch.ones(2, 3, 60, dtype=torch.long), "words of 60 characters, .* reads 50"),
            (torch.ones(3, 50, dtype=torch.long), r"shape \(3, 50\), .*\(batch_size, timesteps"),
            (torch.ones(50, dtype=torch.long), r"shape \(50,\)"),
            (torch.ones(2, 3, 50), "torch.float32"),
            (torch.full((2, 3, 50), -1), "from -1 to -1"),
            (torch.full((2, 3, 50), 262), "from 262 to 262, .*0 .*to 261"),
        ],
    )
    def test_characters(self, files_of, class_name, ids, message):
        arguments = {"num_output_representations": 1} if class_name == "Elmo" else {}
        module = getattr(ours, class_name)(*files_of(), **arguments)
        with pytest.raises(ConfigurationError, match=message):
            module(ids)

    def test_one_bad_character(self, files_of):
        ids = TEXT.clone()
        ids[2, 1, 30] = 262
        with pytest.raises(ConfigurationError, match="from 0 to 262"):
            ours.Elmo(*files_of(), 1)(ids)

    def test_word_ids_beyond_the_cache_without_characters(self, elmo_pair):
        """With characters AllenNLP computes those, and so do ours; see `TestCachedWords`."""
        elmo = elmo_pair(vocab_to_cache=TestCachedWords.WORDS).ours
        positions = TestCachedWords.POSITIONS
        expected = elmo(TestCachedWords().ids(), positions)["elmo_representations"][0]
        elmo._elmo_lstm._elmo_lstm.reset_states()
        # Where all words are in the cache, what stands in for the characters is not read.
        assert_close(elmo(positions, positions)["elmo_representations"][0], expected)
        with pytest.raises(ConfigurationError, match="from 0 to 107, .*has 8 words"):
            elmo(positions, positions + 100 * (positions == 7))
        with pytest.raises(ConfigurationError, match="from 0 to 107, .*has 8 words"):
            elmo(TestCachedWords().ids()[:2], positions + 100 * (positions == 7))
        with pytest.raises(ConfigurationError, match=r"shape \(4,\)"):
            elmo(TestCachedWords().ids(), positions[0])


class TestSpeed:
    """What makes ELMo faster gives the same vectors."""

    SENTENCES = [["the", "cat", "sat", "there"], [], ["the", "dog"]]

    def test_embed_sentences_is_forward(self, files_of):
        elmo = ours.Elmo(*files_of(), 2, dropout=0.0)
        expected = elmo(ours.batch_to_ids(self.SENTENCES))
        elmo._elmo_lstm._elmo_lstm.reset_states()
        actual = elmo.embed_sentences(self.SENTENCES)
        assert torch.equal(actual["mask"], expected["mask"])
        for pair in zip(actual["elmo_representations"], expected["elmo_representations"]):
            assert_close(*pair)

    def test_embed_sentences_with_a_layer_norm(self, files_of):
        elmo = ours.Elmo(*files_of(), 1, dropout=0.0, do_layer_norm=True, initial_state="zero")
        expected = elmo(ours.batch_to_ids(self.SENTENCES))["elmo_representations"][0]
        assert_close(elmo.embed_sentences(self.SENTENCES)["elmo_representations"][0], expected)

    @pytest.mark.parametrize("requires_grad", [False, True])
    def test_kept_words_are_the_computed_ones(self, files_of, requires_grad):
        arguments = {"dropout": 0.0, "requires_grad": requires_grad}
        keeping = ours.Elmo(*files_of(), 1, **arguments)
        computing = ours.Elmo(*files_of(), 1, max_cached_words=0, **arguments)
        for sentences in (self.SENTENCES, self.SENTENCES[:1], [["a", "new", "dog"]]):
            outputs = [
                elmo(ours.batch_to_ids(sentences))["elmo_representations"][0]
                for elmo in (keeping, computing)
            ]
            assert_close(*outputs)
        assert outputs[0].requires_grad

    def test_precision(self, files_of):
        ids = ours.batch_to_ids(self.SENTENCES)
        expected = ours.Elmo(*files_of(), 1, dropout=0.0)(ids)["elmo_representations"][0]
        for precision in ("bfloat16", "int8"):
            elmo = ours.Elmo(*files_of(), 1, dropout=0.0, precision=precision)
            actual = elmo(ids)["elmo_representations"][0]
            assert 0 < (actual - expected).norm() < 0.1 * expected.norm()

    def test_bad_precision(self, files_of):
        with pytest.raises(ConfigurationError, match="precision is 'float16'; it must be one of"):
            ours.Elmo(*files_of(), 1, precision="float16")
        with pytest.raises(ConfigurationError, match="int8 has no gradient"):
            ours.Elmo(*files_of(), 1, precision="int8", requires_grad=True)
