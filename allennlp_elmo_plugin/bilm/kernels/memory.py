"""
Memory that was freed stays with the process.

Rule: glibc takes large blocks from the system and gives them back, so that every 4 KiB of the next
ones cost a page fault, until a block of at most 32 MiB was freed: from then on it keeps blocks of
that size, and twice as much in all (`man mallopt`, M_MMAP_THRESHOLD). So one is freed before the
first batch. It is a setting of the process, and one that MALLOC_MMAP_THRESHOLD_ and the like
overrule.
"""

import torch

# 32 MiB with what malloc adds to a block.
_LARGEST_KEPT = 2**25 - 2**14


def keep_freed_memory() -> None:
    """
    Let malloc keep the memory that a batch frees for the next one.
    """
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8, device="cpu")
