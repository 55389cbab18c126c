"""Gradients averaged by real processes, against one process that has all rows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from allennlp_elmo_plugin.training.sparse_ddp_accelerator import average_sparse_gradients
from tests.support.process_group import run_processes

SHAPES = ((50, 3), (50,))


def _random_gradient(rank: int, kind: str, shape: Any) -> Any:
    generator = torch.Generator().manual_seed(rank)
    if kind == "dense" or (kind == "one dense" and rank == 1):
        return torch.randn(shape, generator=generator)
    if kind == "none" or (kind == "one none" and rank == 0):
        return None
    rows = torch.randint(shape[0], (0 if kind == "empty" else 20 + rank,), generator=generator)
    values = torch.randn(len(rows), *shape[1:], generator=generator)
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape)  # rows may occur twice


def _averaged(rank: int, kind: str) -> Any:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    for parameter, shape in zip(parameters, SHAPES):
        parameter.grad = _random_gradient(rank, kind, shape)
    average_sparse_gradients(parameters)
    gradients: Any = [parameter.grad for parameter in parameters]
    return [
        (each.is_sparse and each.is_coalesced() and each._nnz(), each.to_dense())
        for each in gradients
    ]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("kind", ["sparse", "empty", "none", "one none", "dense", "one dense"])
def test_averages(world_size: int, kind: str, tmp_path: Path) -> None:
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
