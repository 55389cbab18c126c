from typing import Any, Callable, Dict

import numpy
import pytest
import torch

from tests.support.pretend_gpu import PretendGpu


def _gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda:0")


def test_tensors_say_where_they_are(pretend_gpu: Any) -> None:
    on_cpu = torch.ones(2, 3)
    for tensor in (
        on_cpu.to("cuda"),
        on_cpu.to(device="cuda:0", non_blocking=True),
        on_cpu.to(_gpu(1)),
        on_cpu.cuda(),
        torch.tensor(1.5, device="cuda:0"),
        torch.zeros_like(_gpu(2)),
        _gpu(2).new_zeros(3),
        1 - _gpu(2),
        _gpu(2, 3)[0],
        _gpu(2, 3).max(1)[1],
    ):
        assert tensor.device == pretend_gpu.device and tensor.is_cuda
    for tensor in (on_cpu, _gpu(2).cpu(), _gpu(2).to(on_cpu), torch.from_numpy(numpy.zeros(3))):
        assert tensor.device == torch.device("cpu") and not tensor.is_cuda


@pytest.mark.parametrize(
    "call",
    [
        lambda: _gpu(2) + torch.ones(2),
        lambda: torch.ones(()).add_(_gpu(1)[0]),
        lambda: torch.cat([_gpu(2), torch.ones(2)]),
        lambda: _gpu(2, 2).index_select(0, torch.tensor([0])),
        lambda: torch.ones(2)[_gpu(1).long()],
        lambda: torch.add(_gpu(2), _gpu(2), out=torch.empty(2)),
        lambda: torch.nn.Linear(2, 2)(_gpu(1, 2)),
        lambda: _gpu(2).numpy(),
        lambda: torch.zeros(2, device=f"cuda:{torch.cuda.device_count()}"),
    ],
)
def test_refuses_what_a_gpu_refuses(call: Callable[[], Any], pretend_gpu: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        call()


_EVENTS: Dict[str, Dict[str, Callable[[], Any]]] = {
    "sync": {
        "if": lambda: 1 if _gpu(1).all() else 0,
        "tolist": lambda: _gpu(3).tolist(),
        "cpu": lambda: _gpu(3).cpu(),
        "copy_ to the CPU": lambda: torch.empty(3).copy_(_gpu(3)),
        "mask": lambda: _gpu(3)[_gpu(3) > 0],
        "unique": lambda: torch.unique(_gpu(3)),
    },
    "host_to_device": {
        "to": lambda: torch.ones(3).to("cuda:0"),
        "tensor": lambda: torch.tensor([1, 2], device="cuda:0"),
        "assignment": lambda: _gpu(3).__setitem__(slice(None), torch.ones(3)),
        "list as index": lambda: _gpu(3)[[0, 1]],
    },
    "": {
        "arithmetic": lambda: (_gpu(3) * 2 + torch.tensor(2.0)).sum().sqrt(),
        "assignment of a number by mask": lambda: _gpu(3).__setitem__(_gpu(3) > 0, 0.0),
        "repeat_interleave": lambda: torch.repeat_interleave(_gpu(3).long(), output_size=3),
        "the CPU's numbers": lambda: torch.ones(3)[torch.ones(3) > 0].tolist(),
    },
}


@pytest.mark.parametrize("kind, name", [(kind, name) for kind in _EVENTS for name in _EVENTS[kind]])
def test_counts_waits_and_copies(kind: str, name: str, pretend_gpu: Any) -> None:
    with pretend_gpu.count() as events:
        _EVENTS[kind][name]()
    assert [each for each, _ in events] == [kind] * bool(kind)


def test_leaves_torch_as_it_was() -> None:
    before = dict(vars(torch.Tensor)), dict(vars(torch.cuda))
    with PretendGpu():
        survivor = torch.zeros(2, device="cuda:0")
    assert before == (dict(vars(torch.Tensor)), dict(vars(torch.cuda)))
    assert survivor.device == torch.device("cpu")
