import os
import platform
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc"),
]

# Page faults of a batch's largest block, again and again.
COUNT = """
import resource
import threading
import torch
from allennlp_elmo_plugin.bilm import model
from allennlp_elmo_plugin.bilm.kernels.memory import keep_memory_of_training
from allennlp_elmo_plugin.bilm.kernels.parallel import run_in_parallel
{first}
def count():
    torch.ones(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones({megabytes} * 2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print({count})
"""


def count(megabytes: int, first: str = "", function: str = "count()", **variables: str) -> float:
    """Return the page faults in 20 blocks, in blocks."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", COUNT.format(megabytes=megabytes, first=first, count=function)]
    ran = subprocess.run(
        command, env={**environment, **variables}, check=True, stdout=subprocess.PIPE
    )
    return int(ran.stdout) * os.sysconf("SC_PAGE_SIZE") / (megabytes * 2**20)


def test_memory_of_a_batch_is_kept() -> None:
    assert count(8) < 2  # the first of which may be new


@pytest.mark.parametrize("function", ["count()", "run_in_parallel([lambda: 0, count])[1]"])
def test_memory_of_training_is_kept_for_all_threads(function: str) -> None:
    if tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35):
        pytest.skip("this glibc keeps 32 MiB at most")
    assert count(64, first="keep_memory_of_training()", function=function) < 2


def test_a_setting_of_the_user_counts() -> None:
    called = "import ctypes; ctypes.CDLL = None; keep_memory_of_training()"
    assert count(8, first=called, MALLOC_ARENA_MAX="1") < 2
