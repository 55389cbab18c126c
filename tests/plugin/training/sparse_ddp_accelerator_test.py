"""Gradients averaged over real processes."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.training.sparse_ddp_accelerator import SparseDdpAccelerator
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
    if kind == "float64":
        values = values.double() / 3
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape)  # rows may occur twice


class _Tables(BidirectionalLanguageModel):
    def __init__(self, value, dtype):
        torch.nn.Module.__init__(self)
        self.dense = torch.nn.Linear(1, 1)
        self.tables = torch.nn.ParameterList(torch.full(s, value, dtype=dtype) for s in SHAPES)
        self.tied = torch.nn.ParameterList([self.tables[0]])

    def sparse_gradient_parameters(self):
        return list(self.tables)


def _averaged(rank, kind, world_size):
    model = _Tables(float(rank), torch.float64 if kind == "float64" else torch.float32)
    settings = {"sparse_gradient_dtype": kind} if kind == "bfloat16" else {}
    accelerator = DdpAccelerator.from_params(
        Params({"type": "torch", **settings}), local_rank=rank, world_size=world_size
    )
    _, wrapped = accelerator.wrap_model(model)
    of_torch = wrapped.model._build_params_for_reducer()[0]
    assert all(p is own for p, own in zip(of_torch, model.dense.parameters(), strict=True))
    assert dict(wrapped.model.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert not any(table.any() for table in model.tables)  # as in the first process
    for parameter, shape in zip(model.tables, SHAPES):
        parameter.grad = _random_gradient(rank, kind, shape)
    wrapped.average_sparse_gradients()
    gradients = (parameter.grad for parameter in model.tables)
    return [(g.is_sparse and g.is_coalesced() and g._nnz(), g.to_dense()) for g in gradients]


KINDS = ["sparse", "empty", "none", "one none", "dense", "float64", "bfloat16"]


@pytest.mark.parametrize("world_size, kind", [(3, "sparse"), *((2, kind) for kind in KINDS)])
def test_gradients_are_means(world_size, kind, tmp_path):
    results = run_processes(world_size, tmp_path, _averaged, kind, world_size)
    tolerance = 0.02 if kind == "bfloat16" else 1e-12 if kind == "float64" else 1e-6
    for i, shape in enumerate(SHAPES):
        gradients = [_random_gradient(rank, kind, shape) for rank in range(world_size)]
        dense = [torch.zeros(shape) if g is None else g.to_dense() for g in gradients]
        mean = torch.stack(dense).mean(0)
        for rank in range(world_size):
            n_rows, gradient = results[rank][i]
            torch.testing.assert_close(gradient, mean, rtol=tolerance, atol=tolerance)
            assert torch.equal(gradient, results[0][i][1])
            assert torch.equal(gradient, gradient.bfloat16().float()) or kind != "bfloat16"
            n_used = int((mean.reshape(shape[0], -1) != 0).any(1).sum())
            assert n_rows == (False if kind == "dense" else n_used)


def test_other_types_are_refused():
    with pytest.raises(ConfigurationError, match="'float16'"):
        SparseDdpAccelerator(sparse_gradient_dtype="float16", local_rank=0, world_size=1)


def _task_model(rank):
    model, wrapped = SparseDdpAccelerator().wrap_model(torch.nn.Linear(1, 1))
    return type(wrapped), [name for name, _ in wrapped.model.named_parameters()]


def test_other_models_are_wrapped_by_allennlp(tmp_path):
    expected = DdpWrappedModel, ["module.weight", "module.bias"]
    assert run_processes(2, tmp_path, _task_model) == [expected] * 2
