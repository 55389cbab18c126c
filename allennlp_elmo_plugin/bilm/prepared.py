"""
Values made from parameters for inference, such as packed weights.

Rule: a prepared value is used as long as its parameters have the bytes, type and device that it was
made from, which is checked by a checksum of all their bytes in each call of the model; any thread
may use it; it is given up as soon as the check fails.
"""

import zlib
from typing import Any, Callable, Dict, Generic, Hashable, List, Optional, Sequence, Tuple, TypeVar

import torch

from allennlp_elmo_plugin.bilm.model_call import checksums_of_call, lasting_tensors

T = TypeVar("T")

# Of smaller tensors on the CPU, zlib's checksum takes less time than torch's operations.
_FEW_BYTES = 2**14
# Rows of a parameter whose columns are summed up together, so that rounding hides no change.
_BLOCK = 64
# The golden ratio in 64 bits, whose multiples are well spread.
_HASH_FACTOR = 0x9E3779B97F4A7C15 - 2**64


class Prepared(Generic[T]):
    """
    Keeps a value for as long as the module's rule allows. It is left out of copies and pickles.
    """

    def __init__(self) -> None:
        # One attribute, so that a thread sees a value and what it was made from together.
        self._kept: Optional[Tuple[Hashable, T]] = None

    def get(
        self, parameters: Sequence[torch.Tensor], make: Callable[[], T], key: Hashable = None
    ) -> T:
        """
        # Parameters

        parameters : `Sequence[torch.Tensor]`
            What the value is made from.
        make : `Callable[[], T]`
            Makes it.
        key : `Hashable`, optional (default = `None`)
            What else the value depends on.
        """
        signature = key, checksums(parameters)
        kept = self._kept
        if kept is None or kept[0] != signature:
            kept = self._kept = None  # before the new one is made: both may not fit
            with lasting_tensors():
                kept = self._kept = signature, make()
        return kept[1]

    def __getstate__(self) -> Dict[str, Any]:
        return {"_kept": None}


def checksums(parameters: Sequence[torch.Tensor]) -> Tuple[Hashable, ...]:
    """
    Return a checksum of each parameter's bytes, with its type, shape and device. A call of the
    model reads each parameter once. Those on a GPU cost one synchronisation together.
    """
    known = checksums_of_call()
    pending: List[torch.Tensor] = []
    with lasting_tensors():
        for parameter in parameters:
            if id(parameter) not in known:
                total = _checksum(parameter)
                if isinstance(total, torch.Tensor):
                    pending.append(parameter)
                known[id(parameter)] = parameter, total
        if pending:
            totals = torch.stack([known[id(parameter)][1] for parameter in pending]).tolist()
            known.update((id(each), (each, total)) for each, total in zip(pending, totals))
    return tuple((known[id(each)][1], each.dtype, each.shape, each.device) for each in parameters)


def _checksum(parameter: torch.Tensor) -> Any:
    """
    Return an integer, or on a GPU a tensor of one, that changes with any number of the parameter.
    """
    values = parameter.detach().contiguous()
    on_cpu = values.device.type == "cpu"
    if on_cpu and values.numel() * values.element_size() <= _FEW_BYTES:
        return zlib.crc32(values.view(-1).view(torch.uint8).numpy().data)
    rows = values.flatten(1) if values.dim() > 1 else values.view(1, -1)
    n_rows, n_columns = rows.shape
    # Any single number changes a sum of whole numbers. Such a sum is the same for numbers in
    # another order, and often for an even number of changed signs: these change sums of columns.
    size = values.element_size()
    aligned = n_columns * size % 8 == 0 and values.storage_offset() * size % 8 == 0
    row_sums = rows.view(torch.int64 if aligned else torch.uint8).sum(1)  # (n_rows,)
    n_blocks = n_rows // _BLOCK
    blocks = rows[: n_blocks * _BLOCK].view(n_blocks, _BLOCK, n_columns)
    dtype = torch.promote_types(values.dtype, torch.float32)
    column_sums = torch.cat(
        [
            blocks.sum(1, dtype=dtype),
            rows[n_blocks * _BLOCK :].sum(0, keepdim=True, dtype=dtype),
        ]
    )  # (n_blocks + 1, n_columns)
    total = _combined(row_sums) + _combined(column_sums.view(torch.int32))
    return int(total) if on_cpu else total


def _combined(sums: torch.Tensor) -> torch.Tensor:
    """
    Return the sum of whole numbers, each with a factor of its own.
    """
    return (sums.view(-1) * hash_factors(sums.numel(), sums.device)).sum()


def hash_factors(n: int, device: torch.device) -> torch.Tensor:
    """
    Return odd numbers of 64 bits with no pattern, shape `(n,)`, made on the device.
    """
    factors = torch.arange(1, n + 1, device=device) * _HASH_FACTOR
    return (factors ^ (factors >> 29)) * _HASH_FACTOR | 1
