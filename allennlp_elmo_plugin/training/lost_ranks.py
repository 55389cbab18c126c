"""Find the processes that are gone when a collective operation fails."""

import re
import time
from contextlib import contextmanager
from typing import Iterator, List

import torch.distributed as dist
from allennlp.common.util import is_distributed
from torch.distributed.distributed_c10d import _get_default_store

_SECONDS = 10.0
# Gloo's errors begin with the place in its source. torch 1 has no class for those of NCCL.
_COLLECTIVE_ERROR = re.compile(r"\bgloo/\S+\.(cc|h):\d+|\bNCCL (error|communicator)\b")


@contextmanager
def lost_ranks_named() -> Iterator[None]:
    """
    Name the lost processes in the error if a collective operation in the `with` block fails because
    of them. Other errors are raised as they are.

    # Raises

    `ConnectionError`
        (AllenNLP takes a `RuntimeError` for a damaged checkpoint.)
    """
    try:
        yield
    except RuntimeError as error:
        lost = find_lost_ranks() if is_distributed() and _is_of_collective(error) else []
        if not lost:
            raise
        raise ConnectionError(
            f"Lost the connection to rank {', '.join(map(str, lost))} of the "
            f"{dist.get_world_size()} processes (rank {dist.get_rank()} noticed it). See the log "
            "of that process, and continue all with `allennlp train --recover`"
        ) from error


def _is_of_collective(error: RuntimeError) -> bool:
    kind = getattr(dist, "DistBackendError", ())  # NCCL's, from torch 2.0 on
    return isinstance(error, kind) or _COLLECTIVE_ERROR.search(str(error)) is not None


def find_lost_ranks() -> List[int]:
    """
    Return the ranks that do not call this function within ten seconds. Every process that is left
    calls it after a collective operation has failed.
    """
    store, rank, world_size = _get_default_store(), dist.get_rank(), dist.get_world_size()
    lost = [0]  # The first process hosts the store: if the store fails, this process is gone.
    deadline = time.monotonic() + _SECONDS
    try:
        n_calls = store.add(_key(rank), 1)
        while True:
            lost = [r for r in range(world_size) if store.add(_key(r), 0) < n_calls]
            if not lost or time.monotonic() > deadline:
                return lost
            time.sleep(0.1)
    except RuntimeError:
        return lost


def _key(rank: int) -> str:
    return f"allennlp_elmo_plugin/survivor/{rank}"
