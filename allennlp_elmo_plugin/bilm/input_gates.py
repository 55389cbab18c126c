"""
The inputs' part of an LSTM's gates, computed for many steps at once.
"""

from typing import Callable, Iterator, List, Tuple

import torch

from allennlp_elmo_plugin.bilm.kernels.distinct_rows import distinct_rows
from allennlp_elmo_plugin.bilm.kernels.matrix_product import padded_rows

# The inputs' part of the gates is computed for as many steps ahead as fit into this size. Memory of
# this size is used again rather than returned to the system.
_CHUNK_BYTES = 8 * 2**20
# Where inputs are repeated, for as many as would fit into this size. In chunks of fewer rows, or
# with a larger share of distinct ones, it is not worth the search.
_REPEATED_BYTES = 256 * 2**20
_REPEATED_ROWS = 256
_LARGEST_SHARE = 0.75


def input_gates(
    inputs: torch.Tensor,
    product: Callable[[torch.Tensor], torch.Tensor],
    dim: int,
    batch_sizes: List[int],
) -> Iterator[torch.Tensor]:
    """
    Yield the inputs' part of the gates step by step, shape `(size, 4 * dim)`: `product` of the
    inputs `(n_tokens, input_dim)`, computed for some steps ahead.
    """
    chunk_size = _CHUNK_BYTES // (4 * dim * inputs.element_size())
    for rows, sizes in _chunks(inputs, batch_sizes, chunk_size):
        yield from product(padded_rows(rows))[: rows.size(0)].split(sizes)


def repeated_input_gates(
    inputs: torch.Tensor,
    product: Callable[[torch.Tensor], torch.Tensor],
    dim: int,
    batch_sizes: List[int],
) -> Iterator[torch.Tensor]:
    """
    Yield what `input_gates` yields, with one product for equal inputs, such as those of a word.
    """
    chunk_size = _REPEATED_BYTES // (4 * dim * inputs.element_size())
    for rows, sizes in _chunks(inputs, batch_sizes, chunk_size):
        if rows.size(0) >= _REPEATED_ROWS:
            distinct, index = distinct_rows(rows)  # (n_distinct, input_dim), (n_rows,)
            if distinct.size(0) <= _LARGEST_SHARE * rows.size(0):
                gates = product(padded_rows(distinct))  # (at least n_distinct, 4 * dim)
                for places in index.split(sizes):
                    yield gates.index_select(0, places)
                continue
        yield from input_gates(rows, product, dim, sizes)


def _chunks(
    inputs: torch.Tensor, batch_sizes: List[int], chunk_size: int
) -> Iterator[Tuple[torch.Tensor, List[int]]]:
    """
    Yield the rows of as many steps as have at most `chunk_size` of them, of one step at least, and
    the sizes of these steps.
    """
    start = 0
    sizes: List[int] = []
    for t, size in enumerate(batch_sizes):
        sizes.append(size)
        if t + 1 == len(batch_sizes) or sum(sizes) + batch_sizes[t + 1] > chunk_size:
            end = start + sum(sizes)
            yield inputs[start:end], sizes
            start, sizes = end, []
