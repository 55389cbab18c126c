import copy
from typing import Any, Callable, Dict

import numpy
import pytest
import torch

from tests.support.pretend_gpu import PretendGpu

GPU = torch.device("cuda", 0)


def _gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda:0")


def _ids(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, device="cuda:0")


def test_tensors_say_where_they_are(pretend_gpu: Any) -> None:
    on_cpu = torch.ones(2, 3)
    for tensor in (
        on_cpu.to("cuda"),
        on_cpu.to(GPU, torch.float64),
        on_cpu.to(device="cuda:0", non_blocking=True),
        on_cpu.to(_gpu(1)),
        on_cpu.cuda(),
        torch.tensor(1.5, device=GPU),
        torch.as_tensor(numpy.zeros(3), device=GPU),
        torch.zeros(2, device=GPU),
        torch.zeros_like(on_cpu, device=GPU),
        torch.zeros_like(_gpu(2)),
        _gpu(2).new_zeros(3),
        1 - _gpu(2),
        _gpu(2, 3) @ _gpu(3, 2),
        _gpu(2, 3)[0],
        _gpu(2, 3).max(1)[1],
        torch.nn.functional.dropout(_gpu(2, 3), 0.5),
        torch.sparse_coo_tensor(_ids(0, 0).unsqueeze(0), _gpu(2, 2), (3, 2)).coalesce(),
        copy.deepcopy(torch.nn.Parameter(_gpu(2))),
    ):
        assert tensor.device == GPU and tensor.is_cuda
    for tensor in (
        on_cpu,
        _gpu(2).cpu(),
        _gpu(2).to(torch.device("cpu"), torch.float64),
        _gpu(2).to(on_cpu),
        torch.from_numpy(numpy.zeros(3)),
        copy.deepcopy(on_cpu),
    ):
        assert tensor.device == torch.device("cpu") and not tensor.is_cuda
    with GPU:
        assert torch.zeros(2).is_cuda and torch.tensor([1.0]).is_cuda


_REFUSED: Dict[str, Callable[[], Any]] = {
    "add": lambda: _gpu(2) + torch.ones(2),
    "in place": lambda: _gpu(2).add_(torch.ones(2)),
    "in place on the CPU's number": lambda: torch.ones(()).add_(_gpu(1)[0]),
    "addmm": lambda: torch.addmm(torch.ones(2), _gpu(2, 2), _gpu(2, 2)),
    "cat": lambda: torch.cat([_gpu(2), torch.ones(2)]),
    "index_select": lambda: _gpu(2, 2).index_select(0, torch.tensor([0])),
    "scatter_add": lambda: _gpu(2).scatter_add(0, torch.zeros(2, dtype=torch.long), _gpu(2)),
    "index of the GPU into the CPU": lambda: torch.ones(2)[_ids(0)],
    "embedding": lambda: torch.nn.functional.embedding(torch.tensor([0]), _gpu(2, 2)),
    "out": lambda: torch.add(_gpu(2), _gpu(2), out=torch.empty(2)),
    "linear": lambda: torch.nn.Linear(2, 2)(_gpu(1, 2)),
    "numpy": lambda: _gpu(2).numpy(),
    "asarray": lambda: numpy.asarray(_gpu(2)),
    "another GPU": lambda: torch.zeros(2, device=f"cuda:{torch.cuda.device_count()}"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refuses_what_a_gpu_refuses(name: str, pretend_gpu: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        _REFUSED[name]()


_SYNCS: Dict[str, Callable[[], Any]] = {
    "item": lambda: _gpu(1).item(),
    "if": lambda: 1 if _gpu(1).all() else 0,
    "tolist": lambda: _gpu(3).tolist(),
    "cpu": lambda: _gpu(3).cpu(),
    "copy_ to the CPU": lambda: torch.empty(3).copy_(_gpu(3)),
    "nonzero": lambda: _gpu(3).nonzero(),
    "mask": lambda: _gpu(3)[_gpu(3) > 0],
    "unique": lambda: torch.unique(_gpu(3)),
    "equal": lambda: torch.equal(_gpu(3), _gpu(3)),
    "repeat_interleave": lambda: torch.repeat_interleave(_gpu(3).long()),
    "synchronize": lambda: torch.cuda.synchronize(),
}
_COPIES: Dict[str, Callable[[], Any]] = {
    "to": lambda: torch.ones(3).to("cuda:0"),
    "cuda": lambda: torch.ones(3).cuda(),
    "tensor": lambda: torch.tensor([1, 2], device="cuda:0"),
    "as_tensor": lambda: torch.as_tensor(numpy.ones(3), device="cuda:0"),
    "assignment": lambda: _gpu(3).__setitem__(slice(None), torch.ones(3)),
    "list as index": lambda: _gpu(3)[[0, 1]],
}
_NEITHER: Dict[str, Callable[[], Any]] = {
    "shape": lambda: (_gpu(3).size(0), _gpu(3).numel(), _gpu(3).device),
    "arithmetic": lambda: (_gpu(3) * 2 + torch.tensor(2.0)).sum().sqrt(),
    "assignment of a number by mask": lambda: _gpu(3).__setitem__(_gpu(3) > 0, 0.0),
    "index": lambda: _gpu(3)[_gpu(3).long() - 1],
    "repeat_interleave": lambda: torch.repeat_interleave(_gpu(3).long(), output_size=3),
    "the CPU's numbers": lambda: (torch.ones(1).item(), torch.ones(3).tolist()),
    "the CPU's mask": lambda: torch.ones(3)[torch.ones(3) > 0],
}


@pytest.mark.parametrize("name", {**_SYNCS, **_COPIES, **_NEITHER})
def test_counts_waits_and_copies(name: str, pretend_gpu: Any) -> None:
    for calls, expected in ((_SYNCS, (1, 0)), (_COPIES, (0, 1)), (_NEITHER, (0, 0))):
        if name in calls:
            with pretend_gpu.count() as counts:
                calls[name]()
            assert (counts.syncs, counts.host_to_device) == expected, counts.report()
            assert "pretend_gpu_test.py" in counts.report() or expected == (0, 0)


def test_leaves_torch_as_it_was() -> None:
    before = dict(vars(torch.Tensor)), dict(vars(torch.cuda))
    with PretendGpu():
        survivor = torch.zeros(2, device="cuda:0")
    assert before == (dict(vars(torch.Tensor)), dict(vars(torch.cuda)))
    assert survivor.device == torch.device("cpu")
