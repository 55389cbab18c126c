"""
Our ELMo and AllenNLP's with the same weights, and what compares the two.
"""

from typing import Any, Dict, NamedTuple, Optional, Tuple

import pytest
import torch

from allennlp_elmo_plugin.modules import elmo as ours
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo

Files = Tuple[str, str]

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


def encoders(options_file: str, weight_file: str) -> Pair:
    files = options_file, weight_file
    return Pair(ElmoCharacterEncoder(*files), original._ElmoCharacterEncoder(*files))


def bilms(options_file: str, weight_file: str, **arguments: Any) -> Pair:
    files = options_file, weight_file
    return Pair(ElmoBiLm(*files, **arguments), original._ElmoBiLm(*files, **arguments))


@pytest.fixture(scope="module")
def files_of(tmp_path_factory):
    """Options and weights of one of the `SIZES`, written once."""
    written: Dict[str, Files] = {}

    def files(size: str = "plain") -> Files:
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

CACHED_WORDS = ["@@PADDING@@", "the", "old", "mill", "naïve", "x" * 60, "<S>", "."]
POSITIONS = torch.tensor([[1, 2, 3, 7], [4, 0, 0, 0], [5, 6, 0, 0]])


def cached_ids() -> torch.Tensor:
    """The character ids of the words at `POSITIONS`."""
    return original.batch_to_ids(
        [[CACHED_WORDS[i] for i in row if i > 0] for row in POSITIONS.tolist()]
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


def assert_same_state_dict(pair: Pair) -> None:
    actual, expected = (module.state_dict() for module in pair)
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value)
    pair.ours.load_state_dict(expected, strict=True)
    pair.original.load_state_dict(actual, strict=True)


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
