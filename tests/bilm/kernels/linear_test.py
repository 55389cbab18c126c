import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.linear import Linear


@pytest.mark.parametrize("n_rows", [3, 40])
@pytest.mark.parametrize("needs_grad", [True, False])
def test_is_torchs_linear(n_rows, needs_grad):
    torch.manual_seed(1)
    linear, original = Linear(300, 200), torch.nn.Linear(300, 200)
    original.load_state_dict(linear.state_dict())
    results = []
    rows = torch.randn(n_rows, 300)
    for module in (linear, original):
        module.requires_grad_(needs_grad)
        inputs = rows.clone().requires_grad_(needs_grad)
        outputs = module(inputs)
        grads = []
        if needs_grad:
            grads = torch.autograd.grad(outputs.tanh().sum(), [inputs, *module.parameters()])
        results.append([outputs.detach(), *grads])
    for actual, expected in zip(*results):
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_gradient():
    linear = Linear(4, 3).double()
    rows = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *_: linear(rows), (rows, *linear.parameters()))


def test_bfloat16_is_near():
    linear = Linear(300, 200)
    rows = torch.randn(40, 300, requires_grad=True)
    results = []
    for linear.precision in ("float32", "bfloat16"):
        outputs = linear(rows)
        grads = torch.autograd.grad(outputs.tanh().sum(), [rows, *linear.parameters()])
        with torch.no_grad():
            results.append([outputs, *grads, linear(rows)])
    for exact, near in zip(*results):
        assert near.dtype == torch.float32
        assert 0 < (near - exact).norm() < 0.02 * exact.norm()
