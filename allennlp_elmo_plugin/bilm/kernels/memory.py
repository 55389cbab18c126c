"""
Memory that was freed stays with the process.

glibc takes large blocks from the system and gives them back, so that every 4 KiB of the next ones
cost a page fault. Rule: from the import of the model on, the process keeps blocks of up to 32 MiB,
and twice as much in all; from the start of a language model's training on, blocks of up to 1 GiB,
and 2 GiB in all; from the first worker of `side_by_side` on, new threads share the memory that is
kept, unless some thread had its own before. Whoever sets MALLOC_MMAP_THRESHOLD_ or the like decides
instead.
"""

import ctypes
import functools
import os
import sys
from typing import Optional

import torch

# The largest limit that glibc sets itself: 32 MiB, with what malloc adds to a block.
_LARGEST_KEPT = 2**25 - 2**14
_LARGEST_IN_TRAINING = 2**30

# Of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """
    Let malloc keep the memory that a batch frees for the next one.
    """
    # glibc keeps blocks of a size when the first one of this size was freed (`man mallopt`).
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8, device="cpu")


def keep_memory_of_training() -> None:
    """
    Let malloc keep what a step of training frees, gradients and copies of weights among it.
    """
    libc = _libc()
    # A glibc that refuses so much keeps its own rule, which ends with whatever is set.
    if libc is not None and libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_TRAINING):
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_IN_TRAINING - 1)


@functools.cache
def share_memory_of_threads() -> None:
    """
    Let new threads allocate from the same memory as all others. glibc would give each its own, of
    64 MiB, which doesn't keep large blocks.
    """
    libc = _libc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, 1)


def _libc() -> Optional[ctypes.CDLL]:
    """
    Return glibc, unless there is another malloc, or the user has set something about it.
    """
    given = [*os.environ, os.environ.get("GLIBC_TUNABLES", "")]
    if sys.platform != "linux" or any("MALLOC_" in n or "glibc.malloc" in n for n in given):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
