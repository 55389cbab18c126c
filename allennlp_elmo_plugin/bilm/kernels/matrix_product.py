"""
Matrix products on the CPU by oneDNN, where torch has it: with AVX-512 at least as fast as the BLAS
behind `torch.mm`, and for few rows, or on processors that are not Intel's, two to five times.

The operator is the one that torch's compiler calls (from torch 1.13 on). It is not part of torch's
public interface, so it is only used if it is there and gives the right numbers; else `torch.mm` is.
"""

import functools
import warnings
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch

from allennlp_elmo_plugin.bilm.kernels.guarded import Guarded
from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors, without_autocast

PRECISIONS = ("float32", "bfloat16", "int8")

# Products with fewer multiplications are over before oneDNN has begun.
_FEW_MULTIPLICATIONS = 2**19
# As many rows go to oneDNN in any case. It was seen to give a row of so many the same result to the
# bit, in float32 and bfloat16, whatever the others are and how many.
MANY_ROWS = 8


def even_rows(n_rows: int) -> int:
    """
    A number of rows, at least `MANY_ROWS` and up to a sixteenth more than `n_rows`, of which there
    are few. oneDNN keeps code for the last thousand shapes, a megabyte or more for each, so that
    rows in any number would take gigabytes.
    """
    step = max(MANY_ROWS, 2 ** (n_rows.bit_length() - 5))
    return max(-(-n_rows // step), 1) * step


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """
    Whether products of this type go to oneDNN.
    """
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    # What is found holds for good, so that it must not depend on the modes of the first call.
    left = torch.arange(6, device="cpu", dtype=dtype).view(2, 3)
    right = torch.arange(12, device="cpu", dtype=dtype).view(4, 3)
    with without_autocast(), lasting_tensors():
        return _gives_right_numbers(left, right)


def _gives_right_numbers(left: torch.Tensor, right: torch.Tensor) -> bool:
    """
    Return whether oneDNN has `left @ right.t()` as torch has it.
    """
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(right, None)
        expected = left @ right.t()
        products = (
            _linear(left, packed),
            _linear(left, right),
            _linear(left, packed, None, expected),
        )
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(map(torch.equal, products, (expected, expected, 2 * expected)))


def _linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    add: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """
    `rows @ weight.t() + bias + add`; the weight may be one that oneDNN has packed.
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
    `left @ right + bias + add`, without a gradient.

    # Parameters

    left, right : `torch.Tensor`
        Shapes `(n, k)` and `(k, m)`.
    bias, add : `torch.Tensor`, optional (default = `None`)
        Shapes `(m,)` and `(n, m)`.

    # Returns

    `torch.Tensor`
        Shape `(n, m)`.
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
    # oneDNN copies what it gets transposed on the left: the smaller of the two.
    if grad.size(1) > rows.size(1):
        return matrix_product(rows.t(), grad).t().contiguous()
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
    A matrix that many rows will be multiplied with, laid out for that once.

    # Parameters

    matrix : `torch.Tensor`
        Shape `(k, m)`.
    precision : `str`, optional (default = `"float32"`)
        The numbers to compute with: "float32" (those of the matrix), "bfloat16", or "int8", in
        which the matrix has a scale for each column and the rows get one scale at each product.
    """

    def __init__(self, matrix: torch.Tensor, precision: str = "float32") -> None:
        on_cpu = matrix.device.type == "cpu"
        self.dtype = matrix.dtype
        if precision == "bfloat16":
            self.dtype = torch.bfloat16
        elif precision == "int8" and on_cpu:
            self.dtype = torch.float32  # of the rows and the result
        matrix = matrix.detach().to(self.dtype)
        # Each matrix is held once, but for one so small that few rows are not worth oneDNN.
        self._matrix: Optional[torch.Tensor] = None
        self._packed: Optional[torch.Tensor] = None
        self._quantized: Any = None
        if on_cpu and precision == "int8":
            self._quantized = _quantize(matrix)
        elif on_cpu and has_onednn(self.dtype):
            weight = matrix.t()  # (m, k)
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
            if matrix.numel() * MANY_ROWS < _FEW_MULTIPLICATIONS:
                self._matrix = matrix
        else:
            self._matrix = matrix

    def product(
        self,
        rows: torch.Tensor,
        bias: Optional[torch.Tensor] = None,
        add: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """
        `rows @ matrix + bias + add`, without a gradient.

        # Parameters

        rows : `torch.Tensor`
            Shape `(n, k)`, of the type `dtype`, as are the others.
        bias : `torch.Tensor`, optional (default = `None`)
            Shape `(m,)`.
        add : `torch.Tensor`, optional (default = `None`)
            Shape `(n, m)`.

        # Returns

        `torch.Tensor`
            Shape `(n, m)`.
        """
        if self._packed is not None and (self._matrix is None or rows.size(0) >= MANY_ROWS):
            return _linear(rows, self._packed, bias, add)
        if self._quantized is not None:
            result = _int8_product(rows, self._quantized, reduce_range=_int8_saturates())
            for summand in (bias, add):
                if summand is not None:
                    result += summand
            return result
        assert self._matrix is not None
        return _torch_product(rows, self._matrix, bias, add)


def _quantize(matrix: torch.Tensor) -> Any:
    """
    `matrix`, shape `(k, m)`, in whole numbers of 8 bits with a scale for each column, packed.
    """
    weight = matrix.t().contiguous()  # (m, k)
    scales = weight.abs().amax(1).clamp_(min=1e-12) / 127  # (m,)
    zeros = torch.zeros_like(scales, dtype=torch.long)
    with _quantization():
        whole = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(whole, None)


def _int8_product(rows: torch.Tensor, matrix: Any, reduce_range: bool) -> torch.Tensor:
    """
    `rows @ matrix`, shape `(n, m)`, with a matrix of `_quantize`; with `reduce_range` the rows have
    7 bits in place of 8.
    """
    return torch.ops.quantized.linear_dynamic(rows, matrix, reduce_range)


@functools.cache
def _int8_saturates() -> bool:
    """
    Return whether products of 8 bits overflow: processors without VNNI add two in 16 bits.
    """
    with without_autocast(), lasting_tensors():
        ones = torch.ones(64, 8, dtype=torch.float32, device="cpu")
        product = _int8_product(ones.t(), _quantize(ones), reduce_range=False)  # (8, 8)
        return bool(product.min() < 60)


@contextmanager
def _quantization() -> Iterator[None]:
    """
    Use the one library of torch's that has scales by columns, without its warnings. Both are
    settings of the process, so one thread at a time has them.
    """
    with _engine.lock, warnings.catch_warnings():
        # Deprecated in torch 2.14, without a replacement in torch itself.
        warnings.simplefilter("ignore")
        engine = torch.backends.quantized.engine
        try:
            if "fbgemm" in torch.backends.quantized.supported_engines:
                torch.backends.quantized.engine = "fbgemm"
            yield
        finally:
            torch.backends.quantized.engine = engine


_engine = Guarded()
