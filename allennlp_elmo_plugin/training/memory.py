"""Memory that a training step frees, kept in the process for the next step."""

import ctypes
import os
import sys

_LARGEST_KEPT = 2**30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory_of_training() -> None:
    """
    Make glibc keep freed blocks of up to 1 GiB, and twice as much in total, unless an environment
    variable such as MALLOC_MMAP_THRESHOLD_ is set. It returns blocks of more than 32 MiB to the
    system, and the next one costs a page fault for each 4 KiB: without this, ten training steps of
    `small` take 5% more processor time, and 378,000 page faults rather than 25,000. Embedding gains
    nothing from it.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # glibc may refuse such a large threshold. It stops adjusting both once either is set.
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT):
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_KEPT - 1)
