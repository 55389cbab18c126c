"""The states of the random number generators of Python, NumPy and torch (CPU and GPU)."""

import random
from typing import Any

import numpy
import torch


def get_random_state(device: torch.device) -> dict[str, Any]:
    """Return the states, with that of the GPU `device`, as `torch.load` reads without trust."""
    numpy_state: Any = numpy.random.get_state()
    name, keys, *rest = numpy_state
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore what `get_random_state` returned; the GPU's part only if `device` is a GPU."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
