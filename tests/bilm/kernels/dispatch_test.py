"""
Kernels that fail on a GPU, or are wrong there, are not used. Here torch's operators stand for them.
"""

import re

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import ngrams, recurrence
from allennlp_elmo_plugin.bilm.kernels.dispatch import has_kernels, ngrams_for, recurrence_for

WEIGHT = torch.ones(1)


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Modules of kernels that compute as torch's operators do, before their first use."""
    pytest.importorskip("triton")
    from allennlp_elmo_plugin.bilm.kernels import triton_ngrams, triton_recurrence

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_recurrence, "run", recurrence.run)
    for name in ("make_tables", "max_over_ngrams"):
        monkeypatch.setattr(triton_ngrams, name, getattr(ngrams, name))
    has_kernels.cache_clear()
    yield triton_recurrence, triton_ngrams
    has_kernels.cache_clear()


def refuse(*_):
    raise RuntimeError("out of resource: shared memory")


def wrong_cells(layers, inputs, packing, *rest):
    outputs, cells = recurrence.run(layers, inputs, packing, *rest)
    return outputs, cells + 2e-4


def wrong_gradient(layers, inputs, *rest):
    return recurrence.run(layers, [1.1 * rows - 0.1 * rows.detach() for rows in inputs], *rest)


def nan_vectors(*args):
    vectors, order = ngrams.max_over_ngrams(*args)
    return vectors * torch.nan, order


@pytest.mark.parametrize(
    "number, name, function, fault",
    [
        (0, "run", refuse, "RuntimeError('out of resource: shared memory')"),
        (0, "run", wrong_cells, "a number differs by 0.0002"),
        (0, "run", wrong_gradient, "a number differs by 0.4"),
        (1, "max_over_ngrams", nan_vectors, "a number differs by inf"),
    ],
)
def test_kernels_that_fail_are_replaced(number, name, function, fault, kernels, monkeypatch):
    monkeypatch.setattr(kernels[number], name, function)
    with pytest.warns(UserWarning) as said:
        assert recurrence_for(WEIGHT, True) is recurrence and ngrams_for(WEIGHT) is ngrams
    (warning,) = said
    start = f"kernels for GPUs fail here, so slower operators of torch are used: {fault}"
    versions = rf"\(torch {re.escape(torch.__version__)}, Triton \d\S+, cpu, driver .+\)"
    assert re.match(f"{re.escape(start)} {versions}", str(warning.message))


def test_kernels_that_work_are_chosen_in_any_mode_of_torch(kernels):
    hooks = torch.autograd.graph.saved_tensors_hooks(refuse, refuse)
    with torch.inference_mode(), torch.autocast("cpu"), hooks:
        assert (recurrence_for(WEIGHT, True), ngrams_for(WEIGHT)) == kernels


def test_kernels_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("ELMO_KERNELS", "0")
    assert recurrence_for(WEIGHT, True) is recurrence and ngrams_for(WEIGHT) is ngrams
