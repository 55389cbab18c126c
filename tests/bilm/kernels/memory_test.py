import os
import platform
import subprocess
import sys

import pytest

# Page faults of a batch's largest block, again and again.
COUNT = """
import resource
import torch
import allennlp_elmo_plugin.bilm.model
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2 * 2**20)  # 8 MiB, the first of which may be new
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_page_faults() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}

    command = [sys.executable, "-c", COUNT]
    n_faults = int(subprocess.run(command, env=environment, check=True, stdout=-1).stdout)
    assert n_faults < 2 * 8 * 2**20 / os.sysconf("SC_PAGE_SIZE")
