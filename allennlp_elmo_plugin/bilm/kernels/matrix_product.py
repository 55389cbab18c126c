"""
Matrix products on the CPU by oneDNN, where torch has it. With AVX-512 they are at least as fast as
the BLAS behind `torch.mm`; for few rows, or on processors that are not Intel's, two to five times.

The operator is the one that torch's compiler calls. It is not part of torch's public
interface, so it is used only if it exists and returns the right numbers.
"""

import functools
import threading
import warnings
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import torch
from torch.utils._python_dispatch import _disable_current_modes

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors, without_autocast

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


@contextmanager
def _outside_modes() -> Iterator[None]:
    """
    Compute a kept answer, which must not depend on the modes of torch in the first call.
    """
    with _disable_current_modes(), without_autocast(), lasting_tensors():
        yield


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """
    Return whether products of this type go to oneDNN.
    """
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    with _outside_modes():
        left = torch.arange(6, device="cpu", dtype=dtype).view(2, 3)
        right = torch.arange(12, device="cpu", dtype=dtype).view(4, 3)
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


def _prefers_float32(tensor: torch.Tensor) -> bool:
    """
    Return whether torch's own products with this tensor are computed in float32: of bfloat16 on a
    CPU without oneDNN's kernels, which need AVX-512, torch takes 15 to 150 times as long.
    """
    return (
        tensor.dtype == torch.bfloat16
        and tensor.device.type == "cpu"
        and not has_onednn(torch.bfloat16)
    )


def _torch_product(
    left: torch.Tensor,
    right: torch.Tensor,
    bias: Optional[torch.Tensor],
    add: Optional[torch.Tensor],
) -> torch.Tensor:
    if left.dtype != right.dtype or _prefers_float32(left):  # bfloat16, by a matrix in float32
        bias, add = (None if each is None else each.float() for each in (bias, add))
        return _torch_product(left.float(), right.float(), bias, add).to(left.dtype)
    if add is not None:
        result = torch.addmm(add, left, right)  # (n, m)
        return result if bias is None else result.add_(bias)
    return left @ right if bias is None else torch.addmm(bias, left, right)


class PreparedMatrix:
    """
    A matrix, shape `(k, m)`, that is laid out once for many products.

    # Parameters

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
        # A matrix is held once, except one so small that few rows are not worth oneDNN.
        self._matrix: Optional[torch.Tensor] = None
        self._packed: Optional[torch.Tensor] = None
        self._quantized: Any = None
        if on_cpu and precision == "int8":
            self._quantized = _quantize(matrix)
        elif on_cpu and has_onednn(self.dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(matrix.t(), None)
            if matrix.numel() * MANY_ROWS < _FEW_MULTIPLICATIONS:
                self._matrix = matrix
        else:
            self._matrix = matrix.float() if _prefers_float32(matrix) else matrix

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
    Pack `matrix`, shape `(k, m)`, in integers of 8 bits with a scale for each column.
    """
    weight = matrix.t().contiguous()  # (m, k)
    scales = weight.abs().amax(1).clamp_(min=1e-12) / 127  # (m,)
    zeros = torch.zeros_like(scales, dtype=torch.long)
    # The engine, and whether warnings are shown, are settings of the process.
    with _engine_lock, warnings.catch_warnings():
        # Deprecated in torch 2.14, without a replacement in torch itself.
        warnings.simplefilter("ignore")
        engine = torch.backends.quantized.engine
        try:
            # Of torch's engines only this one has a scale for each column.
            if "fbgemm" in torch.backends.quantized.supported_engines:
                torch.backends.quantized.engine = "fbgemm"
            integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(integers, None)
        finally:
            torch.backends.quantized.engine = engine


_engine_lock = threading.Lock()


def _int8_product(rows: torch.Tensor, matrix: Any, reduce_range: bool) -> torch.Tensor:
    """
    Return `rows @ matrix`, shape `(n, m)`, with a matrix of `_quantize`. With `reduce_range` the
    rows have 7 bits instead of 8.
    """
    return torch.ops.quantized.linear_dynamic(rows, matrix, reduce_range)


@functools.cache
def _int8_saturates() -> bool:
    """
    Return whether products of 8 bits overflow: processors without VNNI add two of them in 16 bits.
    """
    with _outside_modes():
        ones = torch.ones(64, 8, dtype=torch.float32, device="cpu")
        product = _int8_product(ones.t(), _quantize(ones), reduce_range=False)  # (8, 8)
        return bool(product.min() < 60)
