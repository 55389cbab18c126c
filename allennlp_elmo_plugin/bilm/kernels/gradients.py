"""
Gradients of elementwise functions, each one operator of torch.
"""

from typing import Optional

import torch


def tanh_backward(
    grad: torch.Tensor, output: torch.Tensor, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """
    Return the gradient of the argument of `tanh` from those of its output, and the output.
    """
    if out is None:
        return torch.ops.aten.tanh_backward(grad, output)
    return torch.ops.aten.tanh_backward(grad, output, grad_input=out)


def sigmoid_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """
    Return the gradient of the argument of `sigmoid` from those of its output, and the output.
    """
    return torch.ops.aten.sigmoid_backward(grad, output, grad_input=out)


def clamp_backward_(grad: torch.Tensor, values: torch.Tensor, clip: float) -> torch.Tensor:
    """
    Set the gradient to zero where values are at or beyond `-clip` and `clip`, in place.
    """
    # Ten times as fast as a multiplication by a mask.
    return torch.ops.aten.hardtanh_backward(grad, values, -clip, clip, grad_input=grad)
