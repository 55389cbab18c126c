"""Our ELMo and AllenNLP's with the same weights, and what compares the two."""

from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch

from allennlp_elmo_plugin.elmo import elmo as ours
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo

# Both clips bind at most steps.
CLIPS = {"cell_clip": 0.4, "proj_clip": 0.15, "recurrent_scale": 0.6}
SIZES = {
    "plain": {},
    "one layer": {"n_layers": 1, "activation": "tanh", "n_highway": 2},
    "three layers": {"n_layers": 3, "activation": "tanh"},
    # Wider than the seven that a word's marks and one more position allow without care.
    "wide filters": {"filters": [(1, 4), (2, 4), (7, 8), (9, 5), (12, 3)], "n_highway": 2},
    "all positions": {"filters": [(50, 6), (3, 4)], "n_highway": 0},
    "clips": {"lstm_dim": 48, "projection_dim": 24, "filters": [(1, 8), (2, 8), (3, 16)], **CLIPS},
}

# Of tensors, and of dictionaries and lists of them
assert_close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


class Pair(NamedTuple):
    ours: Any
    original: Any


def make_pair(*classes, **arguments):
    """Return ours and AllenNLP's, whose parameters are the same, in an optimizer's order too."""
    pair = Pair(*(cls(**arguments) for cls in classes))
    for module in pair:
        torch.manual_seed(1)
        for name, parameter in module.named_parameters():
            if name.startswith("scalar_mix") and parameter.requires_grad:
                torch.nn.init.normal_(parameter)
    assert_close(*(module.state_dict() for module in pair))
    flags = [[(n, p.requires_grad) for n, p in module.named_parameters()] for module in pair]
    assert flags[0] == flags[1]
    assert pair.ours.get_output_dim() == pair.original.get_output_dim()
    return pair


@pytest.fixture(scope="module")
def files_of(tmp_path_factory):
    """Options and weights of one of the `SIZES`, written once."""

    @cache
    def files(size="plain"):
        folder = tmp_path_factory.mktemp("elmo")
        paths = write_random_elmo(folder, seed=len(size), **SIZES[size])
        return dict(zip(("options_file", "weight_file"), paths))

    return files


@pytest.fixture
def elmo_pair(files_of):
    """Make our `Elmo` and AllenNLP's."""

    def make(size="plain", **arguments):
        defaults = {"num_output_representations": 1, "dropout": 0.0}
        return make_pair(ours.Elmo, original.Elmo, **files_of(size), **{**defaults, **arguments})

    return make


def random_ids(*lengths, timesteps=None, seed=0):
    """
    Rows of any character ids at all, 0 and 261 in the middle of words too; a row is padded from its
    length on. Shape `(len(lengths), timesteps, 50)`.
    """
    generator = torch.Generator().manual_seed(seed)
    timesteps = max(lengths) if timesteps is None else timesteps
    ids = torch.randint(0, 262, (len(lengths), timesteps, 50), generator=generator)
    # Zeros are more frequent than chance makes them.
    ids[torch.rand(ids.shape, generator=generator) < 0.05] = 0
    ids[..., 0].clamp_(min=1)
    for row, length in zip(ids, lengths):
        row[length:] = 0
    return ids


SENTENCES = ["Alice counted the naïve ﬁsh in the old mill again , and again .".split(), ["Yes"]]
SENTENCES += [["long" * 20, "日本語" * 5, "<S>", "</S>", "<UNK>"], [], ["the", "the", "the"]]
TEXT = ours.batch_to_ids(SENTENCES)


def assert_same(pair, *inputs):
    results = []
    for module in pair:
        torch.manual_seed(7)  # for dropout
        with torch.no_grad():
            results.append(module(*inputs))
    assert_close(*results)


def assert_same_gradients(pair):
    for (name, mine), its in zip(pair.ours.named_parameters(), pair.original.parameters()):
        assert (mine.grad is None) == (its.grad is None), name
        if its.grad is not None:
            # Not less than the terms of the sums, which float32 rounds.
            scale = max(1.0, its.grad.abs().max().item())
            tolerance = 1e-5 if its.dtype == torch.float32 else 1e-10
            torch.testing.assert_close(mine.grad, its.grad, rtol=0, atol=tolerance * scale)
