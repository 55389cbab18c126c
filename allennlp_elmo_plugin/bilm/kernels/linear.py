"""
A linear layer that uses the matrix products of this folder, with and without a gradient.
"""

from typing import Any, Optional, Tuple

import torch

from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.kernels.gradients import once_differentiable
from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    PreparedMatrix,
    matrix_product,
    product_type,
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call, needs_grad, without_autocast


class _LinearFunction(torch.autograd.Function):
    """
    `rows @ weight.t() + bias` with its gradient, the products in the type `dtype`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        rows_, weight_ = rows.to(dtype), weight.to(dtype)
        ctx.save_for_backward(rows_, weight_)
        return matrix_product(rows_, weight_.t(), bias.to(dtype)).to(rows.dtype)  # (n, out)

    @staticmethod
    @once_differentiable
    @without_autocast()
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        grad_ = grad.to(rows.dtype)
        return (
            matrix_product(grad_, weight).to(grad.dtype) if ctx.needs_input_grad[0] else None,
            weight_gradient(grad_, rows).to(grad.dtype) if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
            None,
        )


class Linear(CachingModule, torch.nn.Linear):
    """
    `torch.nn.Linear`, with a weight prepared once for many calls where no gradient is needed.
    """

    def __init__(self, in_features: int, out_features: int, device: Optional[str] = None) -> None:
        super().__init__(in_features, out_features, device=device)
        # Of the products: one of `PRECISIONS`.
        self.precision = "float32"
        self._prepared: CachedValue[Tuple[PreparedMatrix, torch.Tensor]] = CachedValue()

    @model_call
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """
        Return shape `(n, out_features)` from shape `(n, in_features)`.
        """
        if needs_grad(rows, self.weight, self.bias):
            dtype = product_type(rows, self.precision)
            return _LinearFunction.apply(rows, self.weight, self.bias, dtype)
        if self.weight.device.type == "cpu":
            parameters = [self.weight, self.bias]
            matrix, bias = self._prepared.get(parameters, self._prepare, self.precision)
        else:
            matrix, bias = self._prepare()  # views, which are not worth keeping
        return matrix.product(rows.to(matrix.dtype), bias).to(rows.dtype)

    def _prepare(self) -> Tuple[PreparedMatrix, torch.Tensor]:
        matrix = PreparedMatrix(self.weight.t(), self.precision)
        return matrix, self.bias.detach().to(matrix.dtype)
