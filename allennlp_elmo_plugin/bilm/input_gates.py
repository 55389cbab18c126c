"""
The inputs' part of an LSTM's gates, computed for many steps at once.
"""

from typing import Callable, Iterator, List

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import padded_rows

# The inputs' part of the gates is computed for as many steps ahead as fit into this size. Memory of
# this size is used again rather than returned to the system.
_CHUNK_BYTES = 8 * 2**20


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
    start = 0
    sizes: List[int] = []
    for t, size in enumerate(batch_sizes):
        sizes.append(size)
        if t + 1 == len(batch_sizes) or sum(sizes) + batch_sizes[t + 1] > chunk_size:
            end = start + sum(sizes)
            yield from product(padded_rows(inputs[start:end]))[: end - start].split(sizes)
            start, sizes = end, []
