"""Gradients averaged by real processes, against one process that has all rows."""

from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel

from allennlp_elmo_plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    average_sparse_gradients,
    check_same,
)
from tests.support.process_group import run_processes

SHAPES = ((50, 3), (50,))


def _random_gradient(rank, kind, shape):
    generator = torch.Generator().manual_seed(rank)
    if kind == "dense":
        return torch.randn(shape, generator=generator)
    if kind == "none" or (kind == "one none" and rank == 0):
        return None
    rows = torch.randint(shape[0], (0 if kind == "empty" else 20 + rank,), generator=generator)
    values = torch.randn(len(rows), *shape[1:], generator=generator)
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape)  # rows may occur twice


def _averaged(rank, kind, dtype=torch.float32):
    parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    for parameter, shape in zip(parameters, SHAPES):
        gradient = _random_gradient(rank, kind, shape)
        if gradient is not None:
            parameter.grad = gradient if dtype == torch.float32 else gradient.to(dtype) / 3
    average_sparse_gradients(parameters)
    gradients: Any = [parameter.grad for parameter in parameters]
    return [
        (each.is_sparse and each.is_coalesced() and each._nnz(), each.to_dense())
        for each in gradients
    ]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("kind", ["sparse", "empty", "none", "one none", "dense"])
def test_averages(world_size, kind, tmp_path):
    found = run_processes(world_size, tmp_path, _averaged, kind)
    for i, shape in enumerate(SHAPES):
        gradients = [_random_gradient(rank, kind, shape) for rank in range(world_size)]
        dense = [torch.zeros(shape) if g is None else g.to_dense() for g in gradients]
        mean = torch.stack(dense).mean(0)
        for rank in range(world_size):
            n_rows, gradient = found[rank][i]
            torch.testing.assert_close(gradient, mean)
            assert torch.equal(gradient, found[0][i][1])
            if "dense" in kind:
                assert n_rows is False
            else:
                assert n_rows == int((mean.reshape(shape[0], -1) != 0).any(1).sum())


def _in_bfloat16(rank):
    model: Any = torch.nn.Linear(3, 50)
    model.sparse_gradient_parameters = lambda: [model.weight]
    params = Params({"type": "torch", "sparse_gradient_dtype": "bfloat16"})
    accelerator = DdpAccelerator.from_params(params, local_rank=rank, world_size=2)
    _, wrapped = accelerator.wrap_model(model)
    model.weight.grad = _random_gradient(rank, "sparse", SHAPES[0])
    wrapped.average_sparse_gradients()
    return model.weight.grad.to_dense()


def test_bfloat16(tmp_path):
    first, second = run_processes(2, tmp_path, _in_bfloat16)
    mean = sum(_random_gradient(r, "sparse", SHAPES[0]).to_dense() for r in range(2)) / 2
    torch.testing.assert_close(first, mean, rtol=0.02, atol=0.02)
    assert torch.equal(first, second) and not torch.equal(first, mean)
    assert torch.equal(first, first.bfloat16().float())
    with pytest.raises(ConfigurationError, match="'float16'"):
        SparseDdpAccelerator(sparse_gradient_dtype="float16", local_rank=0, world_size=1)


def test_float64_is_kept(tmp_path):
    for found in run_processes(2, tmp_path, _averaged, "sparse", torch.float64):
        gradients = [_random_gradient(rank, "sparse", SHAPES[0]).double() for rank in range(2)]
        mean = sum(gradient.to_dense() for gradient in gradients) / 2 / 3
        torch.testing.assert_close(found[0][1], mean, rtol=1e-12, atol=1e-12)


def _task_model(rank):
    model, wrapped = SparseDdpAccelerator().wrap_model(torch.nn.Linear(1, 1))
    return type(wrapped), [name for name, _ in wrapped.model.named_parameters()]


def test_other_models_are_wrapped_by_allennlp(tmp_path):
    expected = DdpWrappedModel, ["module.weight", "module.bias"]
    assert run_processes(2, tmp_path, _task_model) == [expected] * 2


def _compared(rank):
    check_same("the same", "nothing")
    with pytest.raises(ConfigurationError) as error:
        check_same(rank % 2, "the text")
    return str(error.value)


def test_what_differs_is_refused_everywhere(tmp_path):
    for message in run_processes(4, tmp_path, _compared):
        assert message.startswith("the text of rank 1, 3 differs from that of rank 0: copy")
