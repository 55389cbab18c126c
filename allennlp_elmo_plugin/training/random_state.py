"""
The states of all random number generators that training may draw from: Python's, NumPy's, torch's
on the CPU and on the current CUDA device.
"""

import random
from typing import Any, Dict

import numpy
import torch


def get_random_state() -> Dict[str, Any]:
    """
    # Returns

    `Dict[str, Any]`
        Tensors and plain Python values, which `torch.load` takes without trusting the file.
    """
    numpy_state: Any = numpy.random.get_state()
    name, keys, *rest = numpy_state
    state = {
        "python": random.getstate(),
        # The keys are unsigned, which older torch has no tensors for.
        "numpy": [name, keys.tolist(), *rest],
        "torch": torch.get_rng_state(),
        "cuda": None,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: Dict[str, Any]) -> None:
    """
    Takes over what `get_random_state` gave. Without the GPU that it was given on, that part is left
    out.
    """
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
