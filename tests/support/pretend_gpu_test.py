from typing import Any, Callable

import pytest
import torch

from tests.support.pretend_gpu import check_on_gpu, gpu_for_tests


def gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda:0")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return 2 * values

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad + torch.zeros(len(grad))


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpu(2) + torch.ones(2),
        lambda: torch.ones(()).add_(gpu(1)[0]),
        lambda: torch.cat([gpu(2), torch.ones(2)]),
        lambda: torch.ones(2)[gpu(1).long()],
        lambda: torch.add(gpu(2), gpu(2), out=torch.empty(2)),
        lambda: torch.nn.Linear(2, 2)(gpu(1, 2)),
        lambda: Doubled.apply(gpu(2).requires_grad_()).sum().backward(),
        lambda: gpu(2).numpy(),
        lambda: torch.zeros(2, device=f"cuda:{torch.cuda.device_count()}"),
    ],
)
def test_refuses_what_a_gpu_refuses(call: Callable[[], Any]) -> None:
    with gpu_for_tests(), pytest.raises((RuntimeError, TypeError)):
        call()


def test_tensors_say_where_they_are() -> None:
    with gpu_for_tests() as device:
        copies = [
            torch.ones(2).to("cuda"),
            torch.ones(2).to(gpu(1)),
            torch.tensor(1, device=device),
        ]
        for tensor in (*copies, torch.zeros_like(gpu(2)), 1 - gpu(2), gpu(2, 3).max(1)[1]):
            assert tensor.device == device and tensor.is_cuda
        for tensor in (torch.ones(2), gpu(2).cpu(), gpu(2).to(torch.ones(2))):
            assert tensor.device == torch.device("cpu") and not tensor.is_cuda


def test_wrong_numbers_are_found() -> None:
    with pytest.raises(AssertionError):
        check_on_gpu(lambda device: torch.ones(1, device=device) * (device.type == "cuda"))
