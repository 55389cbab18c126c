"""Which processes of distributed training are gone, when a collective operation fails."""

import time
from typing import List

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

_SECONDS = 10.0


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether an operation failed because of another process, not of this one's tensors."""
    kind = getattr(dist, "DistBackendError", ())  # NCCL's, from torch 2.0 on
    return isinstance(error, kind) or "gloo" in str(error)


def find_lost_ranks() -> List[int]:
    """
    Return the ranks that do not call this function within ten seconds. Each process calls it after
    an operation of the group has failed.
    """
    store, rank, world_size = _get_default_store(), dist.get_rank(), dist.get_world_size()
    lost = [0]  # It hosts the store: if the store fails, this process is gone.
    deadline = time.monotonic() + _SECONDS
    try:
        store.add(_key(rank), 1)
        while True:
            lost = [other for other in range(world_size) if not store.add(_key(other), 0)]
            if not lost or time.monotonic() > deadline:
                return lost
            time.sleep(0.1)
    except RuntimeError:
        return lost


def _key(rank: int) -> str:
    return f"allennlp_elmo_plugin/survivor/{rank}"
