"""
Values made from parameters for inference, such as packed weights.

Rule: a prepared value is used as long as its parameters have the numbers, type and device that it
was made from. Each call of the model checks this by the versions that torch counts and by a
checksum of all numbers, and drops the value if the check fails. Any thread may use it.
"""

import zlib
from typing import Any, Callable, Dict, Generic, Hashable, List, Optional, Sequence, Tuple, TypeVar

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import checksums_of_call, lasting_tensors

T = TypeVar("T")

# Of smaller tensors on the CPU, zlib's checksum takes less time than torch's operations.
_FEW_BYTES = 2**14
# A parameter is read in rows of so many numbers, and so many rows are added up together.
_WIDTH = 512
_BAG = 64
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
        Return the value that `make` makes from the parameters. `key` is what else it depends on.
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
    Return a checksum of each parameter's numbers, with its version, type, shape and device. A call
    of the model reads each parameter once. Those on a GPU cost one synchronisation together.
    """
    of_call = checksums_of_call()
    known = {} if of_call is None else of_call
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
    return tuple(
        (
            known[id(each)][1],
            # Inference tensors have no versions: only the checksum notices a change.
            0 if each.is_inference() else each._version,
            each.dtype,
            each.shape,
            each.device,
        )
        for each in parameters
    )


def _checksum(parameter: torch.Tensor) -> Any:
    """
    Return an integer, or on a GPU a tensor of one, that changes with any number of the parameter,
    unless the change is lost when 64 numbers are added up.
    """
    values = parameter.detach().contiguous().view(-1)
    on_cpu = values.device.type == "cpu"
    if on_cpu and values.numel() * values.element_size() <= _FEW_BYTES:
        return zlib.crc32(values.view(torch.uint8).numpy().data)
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    n_rows = values.numel() // _WIDTH
    rows, rest = values[: n_rows * _WIDTH].view(n_rows, _WIDTH), values[n_rows * _WIDTH :]
    # The columns of each 64 rows are added up, every row with a factor between 0.5 and 1.5. This
    # operation on rows is as fast as the memory, and has the same result in any number of threads.
    places = torch.arange(n_rows, device=values.device)  # (n_rows,)
    factors = hash_factors(n_rows, values.device) / 2.0**64 + 1  # (n_rows,)
    column_sums = torch.nn.functional.embedding_bag(  # (n_bags, _WIDTH)
        places, rows, places[::_BAG], mode="sum", per_sample_weights=factors.to(values.dtype)
    )
    # Each sum has a factor too, so that the order of columns counts.
    sums = torch.cat([column_sums.view(-1), rest]).view(torch.int32)  # (n_sums,)
    total = (sums * hash_factors(sums.numel(), sums.device)).sum()
    return int(total) if on_cpu else total


def hash_factors(n: int, device: torch.device) -> torch.Tensor:
    """
    Return odd numbers of 64 bits without a pattern, shape `(n,)`, made on the device.
    """
    factors = torch.arange(1, n + 1, device=device) * _HASH_FACTOR
    return (factors ^ (factors >> 29)) * _HASH_FACTOR | 1
