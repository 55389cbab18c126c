"""
Copies to a GPU, and freed memory that stays in the process. glibc returns large blocks to the
system, and the next one costs a page fault for each 4 KiB. Here it keeps blocks of up to 32 MiB (1
GiB in training), and twice as much in total, unless an environment variable such as
MALLOC_MMAP_THRESHOLD_ is set.
"""

import ctypes
import os
import sys

import torch

# The largest limit that glibc sets by itself: 32 MiB, including what malloc adds to a block.
_LARGEST_KEPT = 2**25 - 2**14
_LARGEST_IN_TRAINING = 2**30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Make malloc keep the memory that one batch frees for the next."""
    # Once a block of this size is freed, glibc keeps blocks up to its size (`man mallopt`).
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8, device="cpu")


def keep_memory_of_training() -> None:
    """Make malloc keep what a training step frees."""
    # glibc may refuse such a large threshold. It stops adjusting both once either is set.
    if _set_option(_M_MMAP_THRESHOLD, _LARGEST_IN_TRAINING):
        _set_option(_M_TRIM_THRESHOLD, 2 * _LARGEST_IN_TRAINING - 1)


def share_memory_of_threads() -> None:
    """Make new threads allocate from the same memory as the others."""
    _set_option(_M_ARENA_MAX, 1)


def copy_to(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the CPU on a device, without waiting for what a GPU still computes."""
    if device.type != "cuda":
        return tensor.to(device)
    # torch keeps the pinned memory until it has been copied.
    return tensor.pin_memory().to(device, non_blocking=True)


def _set_option(option: int, value: int) -> bool:
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    libc = ctypes.CDLL(None)
    return hasattr(libc, "mallopt") and bool(libc.mallopt(option, value))
