"""A fast tanh, gradients of elementwise functions, and what a backward pass may do."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import function as autograd_function

from allennlp_elmo_plugin.bilm.kernels.model_call import without_autocast


def backward_once(backward: Callable[..., Any]) -> Any:
    """Mark a backward pass, outside of autocast, for whose own derivative there is an error."""
    differentiable_once = autograd_function.once_differentiable(backward)

    @functools.wraps(backward)
    def call(ctx: Any, *grads: torch.Tensor | None) -> Any:
        if torch.is_grad_enabled():  # With `create_graph`, torch's error needs a gradient.
            grads = tuple(
                None if each is None else each.detach().requires_grad_() for each in grads
            )
        with without_autocast():
            return differentiable_once(ctx, *grads)

    return staticmethod(call)


def may_overwrite_saved() -> bool:
    """Return whether the running backward pass frees what the forward pass saved."""
    return not torch._C._autograd._get_current_graph_task_keep_graph()


# Tensors, since with a number of Python an operator takes twice as long.
ONE, TWO = torch.tensor([1.0, 2.0], device="cpu")


def tanh(values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    # MKL's, which torch calls on the CPU, is several times slower on processors not Intel's.
    if values.device.type == "cpu":
        return torch.mul(values, TWO, out=out).sigmoid_().mul_(TWO).sub_(ONE)
    return torch.tanh(values, out=out)


def tanh_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.tanh_backward(grad, output, grad_input=out)


def sigmoid_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.sigmoid_backward(grad, output, grad_input=out)


def clamp_backward_(grad: torch.Tensor, values: torch.Tensor, clip: float) -> torch.Tensor:
    """Set the gradient to zero where values are at or beyond `-clip` and `clip`, in place."""
    return torch.ops.aten.hardtanh_backward(grad, values, -clip, clip, grad_input=grad)
