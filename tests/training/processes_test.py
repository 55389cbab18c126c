"""Gradients averaged over real processes."""

import pytest
import torch

from allennlp_elmo_plugin.training.processes import (
    average_dense_gradients,
    average_sparse_gradients,
)
from tests.support.process_group import run_processes

SHAPES = ((50, 3), (50,))


def _random_gradient(rank, kind, shape):
    generator = torch.Generator().manual_seed(rank)
    if kind == "none" or ("one none" in kind and rank == 0):
        return None
    if "dense" in kind:
        return torch.randn(shape, generator=generator)
    rows = torch.randint(shape[0], (0 if kind == "empty" else 20 + rank,), generator=generator)
    values = torch.randn(len(rows), *shape[1:], generator=generator)
    if kind == "float64":
        values = values.double() / 3
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape)  # rows may occur twice


def _averaged(rank, kind):
    dtype = torch.float64 if kind == "float64" else torch.float32
    tables = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    for parameter, shape in zip(tables, SHAPES):
        parameter.grad = _random_gradient(rank, kind, shape)
    if kind in ("dense", "one none dense"):
        average_dense_gradients(tables)
        return [(False, parameter.grad) for parameter in tables]
    average_sparse_gradients(tables)
    gradients = (parameter.grad for parameter in tables)
    return [(g.is_sparse and g.is_coalesced() and g._nnz(), g.to_dense()) for g in gradients]


KINDS = ["sparse", "empty", "none", "one none", "dense", "one none dense", "float64"]


@pytest.mark.parametrize("world_size, kind", [(3, "sparse"), *((2, kind) for kind in KINDS)])
def test_gradients_are_means(world_size, kind, tmp_path):
    results = run_processes(world_size, tmp_path, _averaged, kind)
    tolerance = 1e-12 if kind == "float64" else 1e-6
    for i, shape in enumerate(SHAPES):
        gradients = [_random_gradient(rank, kind, shape) for rank in range(world_size)]
        dense = [torch.zeros(shape) if g is None else g.to_dense() for g in gradients]
        mean = torch.stack(dense).mean(0)
        for rank in range(world_size):
            n_rows, gradient = results[rank][i]
            torch.testing.assert_close(gradient, mean, rtol=tolerance, atol=tolerance)
            assert torch.equal(gradient, results[0][i][1])
            n_used = int((mean.reshape(shape[0], -1) != 0).any(1).sum())
            assert n_rows == (False if "dense" in kind else n_used)
