"""The states of all random number generators."""

import random
from typing import Any

import numpy as np
import torch


def get_random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of all random number generators, that of a GPU if `device` is one."""
    numpy_state: Any = np.random.get_state()
    name, keys, *rest = numpy_state
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],  # `torch.load` refuses arrays.
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore what `get_random_state` returned, a GPU's state only if `device` is a GPU."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
