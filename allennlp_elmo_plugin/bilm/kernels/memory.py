"""
Memory that was freed stays with the process.

glibc returns large blocks to the system, so that every 4 KiB of the next ones cost a page fault.
From the import of the model on, the process keeps blocks of up to 32 MiB, and twice as much in all;
from the start of training on, blocks of up to 1 GiB, and 2 GiB in all. Whoever sets
MALLOC_MMAP_THRESHOLD_ or the like decides instead.
"""

import ctypes
import os
import sys

import torch

# The largest limit that glibc sets itself: 32 MiB, with what malloc adds to a block.
_LARGEST_KEPT = 2**25 - 2**14
_LARGEST_IN_TRAINING = 2**30

# Of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Let malloc keep the memory that a batch frees for the next one."""
    # glibc keeps blocks of a size when the first one of this size was freed (`man mallopt`).
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8, device="cpu")


def keep_memory_of_training() -> None:
    """Let malloc keep what a step of training frees, gradients and copies of weights among it."""
    # A glibc that refuses so much keeps its own rule, which ends with whatever is set.
    if _set_option(_M_MMAP_THRESHOLD, _LARGEST_IN_TRAINING):
        _set_option(_M_TRIM_THRESHOLD, 2 * _LARGEST_IN_TRAINING - 1)


def share_memory_of_threads() -> None:
    """Let new threads allocate from the same memory as all others, which keeps large blocks."""
    _set_option(_M_ARENA_MAX, 1)


def _set_option(option: int, value: int) -> bool:
    """Set an option of glibc's malloc, if it is there and the user has set none."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and bool(libc.mallopt(option, value))
