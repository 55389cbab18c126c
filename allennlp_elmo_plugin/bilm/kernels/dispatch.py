"""Choose the module that computes: loops over torch's operators, or kernels written in Triton."""

import functools
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from allennlp_elmo_plugin.bilm.kernels import ngrams, recurrence


def recurrence_for(tensor: torch.Tensor, has_projection: bool) -> ModuleType:
    """Return `recurrence`, or the module with the same functions in Triton."""
    if not (has_projection and runs_triton(tensor)):
        return recurrence
    from allennlp_elmo_plugin.bilm.kernels import triton_recurrence

    return triton_recurrence


def ngrams_for(tensor: torch.Tensor) -> ModuleType:
    """Return `ngrams`, or the module with the same functions in Triton."""
    if not runs_triton(tensor):
        return ngrams
    from allennlp_elmo_plugin.bilm.kernels import triton_ngrams

    return triton_ngrams


def runs_triton(tensor: torch.Tensor) -> bool:
    """
    Return whether Triton's kernels run on this tensor: float32, on an NVIDIA GPU from Ampere on.
    With TRITON_INTERPRET=1 they also run on a CPU, for tests; with ELMO_KERNELS=0 on none.
    """
    return tensor.dtype == torch.float32 and has_kernels(tensor.device)


@functools.cache
def has_kernels(device: torch.device) -> bool:
    """Return whether Triton's kernels run on a device, which they first do here."""
    if os.environ.get("ELMO_KERNELS") == "0" or not _has_triton(device):
        return False
    from allennlp_elmo_plugin.bilm.kernels.first_use import has_right_kernels

    return has_right_kernels(device)


def _has_triton(device: torch.device) -> bool:
    if device.type == "cpu":
        return os.environ.get("TRITON_INTERPRET") == "1"
    # Triton compiles what launches its kernels.
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    if device.type != "cuda" or torch.version.hip or not (compiler and header.exists()):
        return False
    if torch.cuda.get_device_capability(device) < (8, 0) or not importlib.util.find_spec("triton"):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions

    return "launch_cooperative_grid" in CUDAOptions.__dataclass_fields__
