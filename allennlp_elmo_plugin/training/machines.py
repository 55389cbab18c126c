"""The machines of distributed training: each has a folder and data of its own."""

import os
from typing import Any, List

import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed


def n_local_processes() -> int:
    """Return the number of processes on this machine, in distributed training."""
    return int(os.environ.get("ALLENNLP_PROCS_PER_NODE", dist.get_world_size()))


def is_local_primary() -> bool:
    """Return whether this is the first process of its machine, which writes to its folder."""
    return not is_distributed() or dist.get_rank() % n_local_processes() == 0


def check_same(value: Any, message: str) -> None:
    """
    Compare a value in all processes of distributed training, each of which calls this function.

    # Raises

    `ConfigurationError`
        In all processes, with the message, in which `{ranks}` names those that differ from rank 0.
    """
    if not is_distributed():
        return
    values: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    ranks = [str(rank) for rank, other in enumerate(values) if other != values[0]]
    if ranks:
        raise ConfigurationError(message.format(ranks=", ".join(ranks)))
