"""The floor of a workload: the time that its matrix products alone take, by the fastest kernel."""

import time
from collections import Counter
from typing import Any, Callable, List, NamedTuple, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PreparedMatrix, has_onednn

# The place of the left matrix among the arguments, by the name of the operator.
_LEFT = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "mkldnn::_linear_pointwise": 0,
    "quantized::linear_dynamic": 0,
}
_REPETITIONS = 7


class Product(NamedTuple):
    """A product of shapes `(n, k)` and `(k, m)`, so many times at once."""

    number: int
    n: int
    k: int
    m: int
    dtype: torch.dtype
    is_int8: bool


class _Record(TorchDispatchMode):
    """Counts the products that are made in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter = Counter()

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        name = operator._schema.name
        if name in _LEFT:
            k = args[_LEFT[name]].size(-1)
            n, m = result.shape[-2:]
            if n and k and m:
                number = result.numel() // (n * m)
                is_int8 = name.startswith("quantized")
                self.products[Product(number, n, k, m, result.dtype, is_int8)] += 1
        return result


def floor(
    n_words: int, run: Callable[[], Any], device: torch.device = torch.device("cpu")
) -> float:
    """
    Return the words a second if `run`, which reads so many words, made nothing but its matrix
    products, each by the fastest kernel for its shape. With several threads: all of them in each
    product, or one in each and as many products at once, whichever is faster in sum.
    """
    if device.type != "cpu":
        with _Record() as record:
            run()
        return n_words / _seconds(record.products, device)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # One thread makes all products.
    try:
        with _Record() as record:
            run()
        in_turn = _seconds(record.products, device) / n_threads
    finally:
        torch.set_num_threads(n_threads)
    together = in_turn if n_threads == 1 else _seconds(record.products, device)
    return n_words / min(in_turn, together)


def _seconds(products: Counter, device: torch.device) -> float:
    return sum(count * _fastest(product, device) for product, count in products.items())


def _fastest(product: Product, device: torch.device) -> float:
    """Return the seconds of a product by the fastest kernel."""
    left = torch.randn(product.number, product.n, product.k).to(device, product.dtype)
    right = torch.randn(product.number, product.k, product.m).to(device, product.dtype)
    kernels: List[Callable[[], Any]] = []
    if product.is_int8:
        prepared = PreparedMatrix(right[0], "int8")
        kernels.append(lambda: prepared.product(left[0]))
    elif product.number > 1:
        kernels.append(lambda: torch.bmm(left, right))
    else:
        kernels.append(lambda: torch.mm(left[0], right[0]))
        if device.type == "cpu" and has_onednn(product.dtype):
            packed = torch.ops.mkldnn._reorder_linear_weight(right[0].t(), None)
            operator = torch.ops.mkldnn._linear_pointwise
            kernels.append(lambda: operator(left[0], packed, None, "none", [], ""))
    best = float("inf")
    # A call returns before a GPU has computed; many of them hide the way to it.
    n_calls = 1 if device.type == "cpu" else 100
    for kernel in kernels:
        for _ in range(_REPETITIONS):
            start = time.perf_counter()
            for _ in range(n_calls):
                kernel()
            if device.type != "cpu":
                torch.cuda.synchronize(device)
            best = min(best, (time.perf_counter() - start) / n_calls)
    return best
