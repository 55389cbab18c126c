"""A fast tanh, gradients of elementwise functions, and rules of backward passes."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import function as autograd_function

from allennlp_elmo_plugin.bilm.model_call import without_autocast


def backward_once(backward: Callable[..., Any]) -> Any:
    """Make a backward pass that runs without autocast and refuses a second derivative."""
    differentiable_once = autograd_function.once_differentiable(backward)

    @functools.wraps(backward)
    def call(ctx: Any, *grads: torch.Tensor) -> Any:
        # With `create_graph`, torch raises its error only if an input requires a gradient.
        if torch.is_grad_enabled():
            grads = tuple(grad.detach().requires_grad_() for grad in grads)
        with without_autocast():
            return differentiable_once(ctx, *grads)

    return staticmethod(call)


def may_overwrite_saved() -> bool:
    """Return whether the running backward pass frees what the forward pass saved."""
    return not torch._C._autograd._get_current_graph_task_keep_graph()


# As tensors: an operator takes twice as long with a Python number.
ONE, TWO = torch.tensor([1.0, 2.0], device="cpu")


def tanh(values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    # On the CPU torch calls MKL, whose tanh is several times slower on processors not by Intel.
    if values.device.type == "cpu":
        return torch.mul(values, TWO, out=out).sigmoid_().mul_(TWO).sub_(ONE)
    return torch.tanh(values, out=out)


def tanh_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.tanh_backward(grad, output, grad_input=out)


def sigmoid_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.sigmoid_backward(grad, output, grad_input=out)


def clamp_backward_(grad: torch.Tensor, values: torch.Tensor, clip: float) -> torch.Tensor:
    """Set the gradient to zero, in place, where values are at or beyond `-clip` or `clip`."""
    return torch.ops.aten.hardtanh_backward(grad, values, -clip, clip, grad_input=grad)
