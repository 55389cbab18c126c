"""Where the kernels written in Triton run."""

import functools
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch


def runs_triton(tensor: torch.Tensor) -> bool:
    """
    Return whether Triton's kernels run on this tensor: float32, on an NVIDIA GPU from Ampere on.
    With TRITON_INTERPRET=1 they also run on a CPU, for tests.
    """
    return tensor.dtype == torch.float32 and _has_kernels(tensor.device)


@functools.cache
def _has_kernels(device: torch.device) -> bool:
    if device.type == "cpu":
        return os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" or torch.version.hip or not _can_build():
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions

    return "launch_cooperative_grid" in CUDAOptions.__dataclass_fields__


def _can_build() -> bool:
    # Triton compiles what launches its kernels.
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths(scheme="posix_prefix")["include"], "Python.h")
    return bool(compiler and header.exists() and importlib.util.find_spec("triton"))
