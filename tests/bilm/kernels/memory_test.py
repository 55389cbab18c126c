import os
import platform
import resource

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.memory import keep_freed_memory, keep_memory_of_training
from tests.support.testing import fork


def is_kept(megabytes: int) -> bool:
    """Return whether the memory of a block serves most of the next ones without page faults."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(megabytes * 2**18)
    n_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
    return n_bytes < 10 * megabytes * 2**20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
@pytest.mark.parametrize("setting", [None, "MALLOC_ARENA_MAX"])
def test_memory_of_a_batch_is_kept_unless_the_user_has_a_setting(setting: str) -> None:
    def child() -> None:
        keep_freed_memory()
        assert is_kept(8) and not is_kept(64)
        if setting is not None:
            os.environ[setting] = "4"
        keep_memory_of_training()
        assert is_kept(8) and is_kept(64) == (setting is None)

    assert fork(child) == 0
