"""
Matrix products on the CPU by oneDNN, where torch has it. With AVX-512 they are at least as fast as
the BLAS behind `torch.mm`; for few rows, or on processors that are not Intel's, two to five times.

The operator is the one that torch's compiler calls. It is not part of torch's public
interface, so it is used only if it exists and returns the right numbers.
"""

import functools
import warnings
from typing import Any, Optional

import torch

PRECISIONS = ("float32", "bfloat16", "int8")

# oneDNN takes longer to start than products with fewer multiplications take.
_FEW_MULTIPLICATIONS = 2**19
# So many rows go to oneDNN in any case. In experiments, the result of a row among so many did not
# depend on the other rows, to the bit, in float32 and bfloat16.
MANY_ROWS = 8


def even_rows(n_rows: int) -> int:
    """
    Round `n_rows` up, to at least `MANY_ROWS` and by at most a sixteenth of more rows. oneDNN keeps
    code for the last thousand shapes, a megabyte or more for each, so that any number of rows would
    take gigabytes.
    """
    step = max(MANY_ROWS, 2 ** (n_rows.bit_length() - 5))
    return max(-(-n_rows // step), 1) * step


def padded_rows(rows: torch.Tensor) -> torch.Tensor:
    """
    Return rows with zeros below them, shape `(even_rows(n), dim)` from `(n, dim)`.
    """
    return torch.nn.functional.pad(rows, (0, 0, 0, even_rows(rows.size(0)) - rows.size(0)))


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """
    Return whether products of this type go to oneDNN.
    """
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    left = torch.arange(6, device="cpu", dtype=dtype).view(2, 3)
    right = torch.arange(12, device="cpu", dtype=dtype).view(4, 3)
    expected = left @ right.t()
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(right, None)
        product, sum_ = _linear(left, packed), _linear(left, right, None, expected)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(product, expected) and torch.equal(sum_, 2 * expected)


def product_type(parameter: torch.Tensor, precision: str) -> torch.dtype:
    """
    Return the type of the rows that are multiplied with a parameter in this precision. Without
    AVX-512, where torch takes 15 to 150 times as long in bfloat16, this is float32.
    """
    if precision == "bfloat16" and (parameter.device.type != "cpu" or has_onednn(torch.bfloat16)):
        return torch.bfloat16
    return torch.float32 if precision == "int8" else parameter.dtype


def _linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    add: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """
    Return `rows @ weight.t() + bias + add`. oneDNN may have packed the weight.
    """
    operator = torch.ops.mkldnn._linear_pointwise
    if add is None:
        return operator(rows, weight, bias, "none", [], "")
    return operator.binary(rows, add, weight, bias, "add")


def matrix_product(
    left: torch.Tensor,
    right: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    add: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """
    Return `left @ right + bias + add`, shape `(n, m)`, without a gradient, from shapes `(n, k)`,
    `(k, m)`, `(m,)` and `(n, m)`.
    """
    n_multiplications = left.size(0) * right.numel()
    if (
        n_multiplications >= _FEW_MULTIPLICATIONS
        and left.device.type == "cpu"
        and has_onednn(left.dtype)
    ):
        return _linear(left, right.t(), bias, add)
    return _torch_product(left, right, bias, add)


def weight_gradient(grad: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """
    Return `grad.t() @ rows`, contiguous: the gradient of a weight, shape `(m, k)`, from shapes
    `(n, m)` and `(n, k)`.
    """
    # oneDNN copies a transposed left side, so the smaller of the two stands there.
    if grad.size(1) > rows.size(1):
        left = rows.t()
        if left.dtype == torch.bfloat16:
            left = left.contiguous()  # oneDNN's own copy of this type takes twice as long
        return matrix_product(left, grad).t().contiguous()
    return matrix_product(grad.t(), rows)


def _torch_product(
    left: torch.Tensor,
    right: torch.Tensor,
    bias: Optional[torch.Tensor],
    add: Optional[torch.Tensor],
) -> torch.Tensor:
    if add is not None:
        result = torch.addmm(add, left, right)  # (n, m)
        return result if bias is None else result.add_(bias)
    return left @ right if bias is None else torch.addmm(bias, left, right)


class PreparedMatrix:
    """
    A matrix, shape `(k, m)`, that is laid out once for many products, when the first one needs it.

    # Parameters

    precision : `str`, optional (default = `"float32"`)
        The numbers to compute with: "float32" (those of the matrix), "bfloat16", or "int8", in
        which the matrix has a scale for each column and the rows, of 7 bits, get one scale at each
        product: with 8 bits, products overflow on processors without VNNI.
    scales : `torch.Tensor`, optional (default = ones)
        What the columns are multiplied with, shape `(m,)`.
    """

    def __init__(
        self,
        matrix: torch.Tensor,
        precision: str = "float32",
        scales: Optional[torch.Tensor] = None,
    ) -> None:
        self.dtype = product_type(matrix, precision)
        self._matrix = matrix.detach()
        self._scales = scales
        on_cpu = matrix.device.type == "cpu"
        self._is_quantized = on_cpu and precision == "int8"
        self._is_packed = on_cpu and not self._is_quantized and has_onednn(self.dtype)

    def product(
        self,
        rows: torch.Tensor,
        bias: Optional[torch.Tensor] = None,
        add: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """
        Return `rows @ matrix + bias + add`, shape `(n, m)`, without a gradient, from shapes
        `(n, k)`, `(m,)` and `(n, m)`, all of the type `dtype`.
        """
        if self._is_packed and (
            rows.size(0) >= MANY_ROWS or self._matrix.numel() * MANY_ROWS >= _FEW_MULTIPLICATIONS
        ):
            return _linear(rows, self._packed, bias, add)
        if not self._is_quantized:
            return _torch_product(rows, self._plain, bias, add)
        result = torch.ops.quantized.linear_dynamic(rows, self._quantized, True)  # (n, m)
        for summand in (bias, add):
            if summand is not None:
                result += summand
        return result

    def product_of_one(self, row: torch.Tensor, add: Optional[torch.Tensor] = None) -> torch.Tensor:
        """
        Return `product` of one row, in float32 by the matrix as it is, which is faster. A program
        with products of more rows, too, holds the matrix in both layouts.
        """
        if self.dtype != torch.float32 or self._is_quantized:
            return self.product(row, add=add)
        return _torch_product(row, self._of_one, None, add)

    def _scaled(self) -> torch.Tensor:
        matrix = self._matrix if self._scales is None else self._matrix * self._scales
        return matrix.to(self.dtype)

    @functools.cached_property
    def _plain(self) -> torch.Tensor:
        return self._scaled()

    @functools.cached_property
    def _of_one(self) -> torch.Tensor:
        # The longer side of a matrix is read in order.
        k, m = self._matrix.shape
        return self._scaled() if m < k else self._scaled().contiguous()

    @functools.cached_property
    def _packed(self) -> torch.Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(self._scaled().t(), None)

    @functools.cached_property
    def _quantized(self) -> Any:
        return _quantize(self._scaled())


def _quantize(matrix: torch.Tensor) -> Any:
    """
    Pack `matrix`, shape `(k, m)`, in integers of 8 bits with a scale for each column.
    """
    weight = matrix.t().contiguous()  # (m, k)
    scales = weight.abs().amax(1).clamp_(min=1e-12) / 127  # (m,)
    zeros = torch.zeros_like(scales, dtype=torch.long)
    with warnings.catch_warnings():
        # Deprecated in torch 2.14, without a replacement in torch itself.
        warnings.simplefilter("ignore")
        integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(integers, None)
