"""
Memory that was freed stays with the process.

glibc returns large blocks to the system, where 4 KiB of the next ones cost a page fault each. Ours
keeps blocks of up to 32 MiB, in training of up to 1 GiB, and twice as much in all, unless
MALLOC_MMAP_THRESHOLD_ or the like is set.
"""

import ctypes
import os
import sys

import torch

# The largest limit that glibc sets itself: 32 MiB, with what malloc adds to a block.
_LARGEST_KEPT = 2**25 - 2**14
_LARGEST_IN_TRAINING = 2**30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Let malloc keep the memory that a batch frees for the next one."""
    # glibc keeps blocks of a size when the first one of this size was freed (`man mallopt`).
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8, device="cpu")


def keep_memory_of_training() -> None:
    """Let malloc keep what a step of training frees."""
    # glibc may refuse so much. Its own rule ends with whatever is set.
    if _set_option(_M_MMAP_THRESHOLD, _LARGEST_IN_TRAINING):
        _set_option(_M_TRIM_THRESHOLD, 2 * _LARGEST_IN_TRAINING - 1)


def share_memory_of_threads() -> None:
    """Let new threads allocate from the same memory as all others."""
    _set_option(_M_ARENA_MAX, 1)


def _set_option(option: int, value: int) -> bool:
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and bool(libc.mallopt(option, value))
