"""
Matrix products by oneDNN on the CPU, one to five times as fast as `torch.mm`. They use an internal
operator of torch's compiler, after checking that it returns the right numbers.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch

from allennlp_elmo_plugin.bilm.model_call import backward_once

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# oneDNN's start takes longer than a whole product of fewer multiplications.
_FEW_MULTIPLICATIONS = 2**19
# With at least this many rows, oneDNN is always used: its result for a row doesn't depend on the
# other rows.
MANY_ROWS = 8


def padded_rows(rows: torch.Tensor) -> torch.Tensor:
    """Pad to one of a few row counts on the CPU: oneDNN keeps a megabyte or more for each."""
    n = rows.size(0)
    step = max(MANY_ROWS, 2 ** (n.bit_length() - 5))
    n_padded = max(-(-n // step), 1) * step
    if n == n_padded or rows.device.type != "cpu":
        return rows
    return torch.nn.functional.pad(rows, (0, 0, 0, n_padded - n))


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Return whether products of this type go to oneDNN."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    left = torch.arange(6, device="cpu", dtype=dtype).view(2, 3)
    right = torch.arange(12, device="cpu", dtype=dtype).view(4, 3)
    expected = left @ right.t()
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(right, None)
        product, sum_ = (_onednn_product(left, packed, add) for add in (None, expected))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(product, expected) and torch.equal(sum_, 2 * expected)


def product_type(parameter: torch.Tensor, precision: str) -> torch.dtype:
    """Return the type of products: not bfloat16 without AVX-512, where it is very slow."""
    if precision == "bfloat16" and (parameter.device.type != "cpu" or has_onednn(torch.bfloat16)):
        return torch.bfloat16
    return torch.float32 if precision == "int8" else parameter.dtype


def _onednn_product(
    rows: torch.Tensor, weight: torch.Tensor, add: torch.Tensor | None
) -> torch.Tensor:
    operator = torch.ops.mkldnn._linear_pointwise
    if add is None or add.dim() == 1:
        return operator(rows, weight, add, "none", [], "")
    return operator.binary(rows, add, weight, None, "add")


def _torch_product(
    left: torch.Tensor, right: torch.Tensor, add: torch.Tensor | None
) -> torch.Tensor:
    return torch.mm(left, right) if add is None else torch.addmm(add, left, right)


def matrix_product(
    left: torch.Tensor, right: torch.Tensor, add: torch.Tensor | None = None
) -> torch.Tensor:
    """Return `left @ right + add` without a gradient. `add` has shape `(m,)` or `(n, m)`."""
    is_large = left.size(0) * right.numel() >= _FEW_MULTIPLICATIONS
    if is_large and left.device.type == "cpu" and has_onednn(left.dtype):
        return _onednn_product(left, right.t(), add)
    return _torch_product(left, right, add)


def weight_gradient(grad: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a weight, `grad.t() @ rows`, contiguous."""
    # oneDNN copies a transposed left side, so the smaller matrix goes there.
    if grad.size(1) > rows.size(1):
        left = rows.t()
        if left.dtype == torch.bfloat16:
            left = left.contiguous()  # oneDNN's own copy of this type takes twice as long
        return matrix_product(left, grad).t().contiguous()
    return matrix_product(grad.t(), rows)


class Linear(torch.autograd.Function):
    """`rows @ weight.t() + bias` with its gradient, the products in the type `dtype`."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        rows_, weight_ = rows.to(dtype), weight.to(dtype)
        ctx.save_for_backward(rows_, weight_)
        return matrix_product(rows_, weight_.t(), bias.to(dtype)).to(rows.dtype)

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        grad_ = grad.to(rows.dtype)
        return (
            matrix_product(grad_, weight).to(grad.dtype) if ctx.needs_input_grad[0] else None,
            weight_gradient(grad_, rows).to(grad.dtype) if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
            None,
        )


class PreparedMatrix:
    """
    A matrix, shape `(k, m)`, its columns multiplied by `scales`, shape `(m,)`. The first product
    lays it out for all later ones. "int8" quantizes each column by its own scale, and rows to 7
    bits, since products of 8 bits overflow on processors without VNNI.
    """

    def __init__(
        self, matrix: torch.Tensor, precision: str = "float32", scales: torch.Tensor | None = None
    ) -> None:
        self.dtype = product_type(matrix, precision)
        self._matrix = matrix.detach()
        self._scales = scales
        on_cpu = matrix.device.type == "cpu"
        self._is_quantized = on_cpu and precision == "int8"
        self._is_large = matrix.numel() * MANY_ROWS >= _FEW_MULTIPLICATIONS
        self._is_packed = on_cpu and not self._is_quantized and has_onednn(self.dtype)
        self.is_exact = precision != "int8" and self.dtype != torch.bfloat16
        self._stacks: dict[tuple[PreparedMatrix, ...], torch.Tensor] = {}

    def product(self, rows: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        """Do what `matrix_product` does, for the type `dtype`. `add` may be overwritten."""
        if self._is_quantized:
            result = torch.ops.quantized.linear_dynamic(rows, self._quantized, True)  # (n, m)
            return result if add is None else result.add_(add)
        if self._is_packed and (self._is_large or rows.size(0) >= MANY_ROWS):
            return _onednn_product(rows, self._packed, add)
        if add is not None and add.dim() == 2:
            return add.addmm_(rows, self._plain)  # without a copy of `add`
        return _torch_product(rows, self._plain, add)

    def _scaled(self) -> torch.Tensor:
        matrix = self._matrix if self._scales is None else self._matrix * self._scales
        return matrix.to(self.dtype)

    _plain = functools.cached_property(_scaled)

    @functools.cached_property
    def _packed(self) -> torch.Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(self._scaled().t(), None)

    @functools.cached_property
    def _quantized(self) -> Any:
        weight = self._scaled().t().contiguous()  # (m, k)
        scales = weight.abs().amax(1).clamp_(min=1e-12) / 127  # (m,)
        zeros = torch.zeros_like(scales, dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, but torch itself has no replacement
            integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(integers, None)


def stacked(*matrices: PreparedMatrix) -> torch.Tensor:
    """Return matrices as one tensor, shape `(n_matrices, k, m)`, which the first one keeps."""
    first, key = matrices[0], matrices[1:]
    if key not in first._stacks:
        stack = torch.stack([matrix._scaled() for matrix in matrices])  # (n_matrices, k, m)
        if stack.size(1) > stack.size(2):
            stack = stack.mT.contiguous().mT  # The longer side is read in order.
        first._stacks[key] = stack
    return first._stacks[key]


def linear_layer(
    layer: torch.nn.Linear, precision: str, has_gradient: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function of rows: a layer with its gradient, or laid out once for many calls."""
    if has_gradient:
        dtype = product_type(layer.weight, precision)
        return lambda rows: Linear.apply(rows, layer.weight, layer.bias, dtype)
    matrix = PreparedMatrix(layer.weight.t(), precision)
    bias = layer.bias.detach().to(matrix.dtype)
    return lambda rows: matrix.product(rows.to(matrix.dtype), bias).to(rows.dtype)
