"""
The states of all random number generators that training may draw from: Python's, NumPy's, torch's
on the CPU and on the GPU of the training.
"""

import random
from typing import Any, Dict

import numpy
import torch


def get_random_state(device: torch.device) -> Dict[str, Any]:
    """
    # Parameters

    device : `torch.device`
        The device of the training.

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
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Dict[str, Any], device: torch.device) -> None:
    """
    Restore what `get_random_state` returned. The GPU's part is left out where training goes on
    without one.
    """
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
