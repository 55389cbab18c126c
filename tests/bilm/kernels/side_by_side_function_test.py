import gc
import weakref

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import side_by_side_function
from allennlp_elmo_plugin.bilm.kernels.gradients import once_differentiable
from allennlp_elmo_plugin.bilm.kernels.model_call import may_overwrite_saved
from allennlp_elmo_plugin.bilm.kernels.side_by_side_function import apply_side_by_side

overwritten = []


class Product(torch.autograd.Function):
    """`factor * left * right`, and its number of values without a gradient."""

    @staticmethod
    def forward(ctx, left, right, factor):
        ctx.save_for_backward(left, right)
        ctx.factor = factor
        number = torch.tensor(left.numel())
        ctx.mark_non_differentiable(number)
        return factor * left * right, number

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        left, right = ctx.saved_tensors
        overwritten.append(may_overwrite_saved())
        if grad.isnan().any():
            raise ValueError("NaN")
        return (
            grad * ctx.factor * right if ctx.needs_input_grad[0] else None,
            grad * ctx.factor * left if ctx.needs_input_grad[1] else None,
            None,
        )


@pytest.fixture(params=[1, 2])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return [torch.rand(3, requires_grad=i != 2) for i in range(4)]


def call(tensors):
    calls = [(Product, (*tensors[:2], 2)), (Product, (*tensors[2:], 3))]
    return apply_side_by_side(calls)


def test_results_and_gradients_are_those_of_the_function(n_threads, tensors):
    (first, three), (second, _) = call(tensors)
    assert three == 3 and not three.requires_grad
    assert torch.equal(first, 2 * tensors[0] * tensors[1])
    assert torch.equal(second, 3 * tensors[2] * tensors[3])
    grads = torch.autograd.grad(first.sum() + 5 * second.sum(), [tensors[i] for i in (0, 1, 3)])
    for grad, expected in zip(grads, (2 * tensors[1], 2 * tensors[0], 15 * tensors[2])):
        torch.testing.assert_close(grad, expected.detach())


@pytest.mark.parametrize("used", [0, 1])
def test_a_call_whose_output_is_not_used_has_no_gradient(n_threads, tensors, used):
    call(tensors)[used][0].sum().backward()
    assert [each.grad is not None for each in tensors] == [
        [True, True, False, False],
        [False, False, False, True],
    ][used]


class NoGradient(torch.autograd.Function):
    """What is in the graph and gets no gradient."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def test_calls_whose_outputs_get_no_gradient(n_threads, tensors):
    (first, _), (second, _) = call(tensors)
    (NoGradient.apply(first) + NoGradient.apply(second)).sum().backward()
    assert [each.grad for each in tensors] == [None] * 4


def test_saved_tensors_are_freed_as_without_threads(n_threads, tensors):
    (first, _), (second, _) = call(tensors)
    loss = first.sum() + second.sum()
    overwritten.clear()
    loss.backward(retain_graph=True)
    kept = [each.grad.clone() for each in tensors if each.requires_grad]
    assert overwritten == [False] * 2
    loss.backward()
    assert overwritten[2:] == [True] * 2
    for grad, each in zip(kept, (tensors[i] for i in (0, 1, 3))):
        assert torch.equal(2 * grad, each.grad)
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_nothing_keeps_tensors_of_a_graph(n_threads):
    gc.disable()
    try:
        tensors = [torch.rand(3, requires_grad=True).clone() for _ in range(4)]
        seen = [weakref.ref(each) for each in tensors]
        results = call(tensors)
        del tensors, results
        assert [each() for each in seen] == [None] * 4
    finally:
        gc.enable()


def test_a_change_of_a_saved_tensor_is_found(n_threads, tensors):
    (first, _), (second, _) = call(tensors)
    with torch.no_grad():
        tensors[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (first.sum() + second.sum()).backward()


def test_there_is_no_second_derivative(n_threads, tensors):
    (first, _), (second, _) = call(tensors)
    (grad,) = torch.autograd.grad(first.sum() + second.sum(), tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_an_error_of_the_backward_pass_reaches_the_caller(n_threads, tensors):
    (first, _), (second, _) = call(tensors)
    with pytest.raises(ValueError, match="NaN"):
        (first.sum() + (second * float("nan")).sum()).backward()


def test_hooks_see_what_is_saved(n_threads, tensors):
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call(tensors)
    assert {id(each) for each in packed} <= {id(each) for each in tensors} or len(packed) == 4


def test_both_passes_go_side_by_side(tensors, monkeypatch):
    numbers = []

    def run(functions):
        numbers.append(len(functions))
        return [function() for function in functions]

    monkeypatch.setattr(side_by_side_function, "may_run_side_by_side", lambda device: True)
    monkeypatch.setattr(side_by_side_function, "run_side_by_side", run)
    (first, _), (second, _) = call(tensors)
    (first.sum() + second.sum()).backward()
    assert numbers == [2, 2]
