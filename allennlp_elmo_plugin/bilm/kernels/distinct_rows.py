"""
The distinct rows of a matrix, such as those of equal words.
"""

from typing import Tuple

import torch


def distinct_rows(rows: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Return the distinct rows `(n_distinct, width)` of integers `(n, width)`, and for each row its
    place among them `(n,)`, as `torch.unique(rows, dim=0, return_inverse=True)` does.
    """
    hashes = (rows * _hash_factors(rows.size(1), rows.device)).sum(1)  # (n,)
    distinct, index = hashes.unique(return_inverse=True)
    representative = torch.empty_like(distinct)
    representative.scatter_(0, index, torch.arange(rows.size(0), device=rows.device))
    found = rows[representative]
    if not torch.equal(found[index], rows):
        found, index = rows.unique(dim=0, return_inverse=True)
    return found, index


# The golden ratio in 64 bits, whose multiples are well spread.
_HASH_FACTOR = 0x9E3779B97F4A7C15 - 2**64


def _hash_factors(n: int, device: torch.device) -> torch.Tensor:
    """
    Return odd numbers of 64 bits without a pattern, shape `(n,)`, made on the device.
    """
    factors = torch.arange(1, n + 1, device=device) * _HASH_FACTOR
    return (factors ^ (factors >> 29)) * _HASH_FACTOR | 1
