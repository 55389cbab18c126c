import pytest
import torch

from tests.support.pretend_gpu import gpu_for_tests


def gpu(*shape):
    return torch.ones(*shape, device="cuda:0")


def differentiate():
    values = gpu(2).requires_grad_()
    values.register_hook(lambda grad: grad + torch.zeros(2))
    values.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpu(2) + torch.ones(2),
        lambda: torch.ones(()).add_(gpu(1)[0]),
        lambda: torch.cat([gpu(2), torch.ones(2)]),
        lambda: torch.ones(2)[gpu(1).long()],
        lambda: torch.add(gpu(2), gpu(2), out=torch.empty(2)),
        lambda: torch.nn.Linear(2, 2)(gpu(1, 2)),
        lambda: gpu(2).numpy(),
        differentiate,
    ],
)
def test_refuses_what_a_gpu_refuses(call):
    with gpu_for_tests(), pytest.raises((RuntimeError, TypeError)):
        call()
