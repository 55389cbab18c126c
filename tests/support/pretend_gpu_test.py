import pytest
import torch

from tests.support.pretend_gpu import gpu_for_tests


def gpu(*shape):
    return torch.ones(*shape, device="cuda:0")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return 2 * values

    @staticmethod
    def backward(ctx, grad):
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
    ],
)
def test_refuses_what_a_gpu_refuses(call):
    with gpu_for_tests(), pytest.raises((RuntimeError, TypeError)):
        call()
