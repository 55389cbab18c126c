"""The state of Adagrad as an HDF5 file: for each parameter the sum of its squared gradients."""

import os
from collections.abc import Iterable

import numpy
import torch

from allennlp_elmo_plugin.files.hdf5_file import is_float, open_weight_file
from allennlp_elmo_plugin.files.whole import LateErrorFile

_STEP = "step"
_ROWS_AT_ONCE = 2**14


def write_adagrad_state(
    path: str | os.PathLike[str],
    accumulators: Iterable[tuple[str, torch.Tensor]],
    step: int,
) -> None:
    """Write the name and the sum of each parameter, and the number of updates so far (`step`)."""
    import h5py

    with LateErrorFile(path) as file, h5py.File(file, "w") as state_file:
        state_file.attrs[_STEP] = step
        for name, values in accumulators:
            state_file.create_dataset(name, data=values.detach().cpu().numpy())


def read_adagrad_state(
    path: str | os.PathLike[str],
    parameters: Iterable[tuple[str, torch.Tensor]],
    optimizer: torch.optim.Optimizer,
) -> int:
    """
    Copy the state that `write_adagrad_state` wrote into the memory of `torch.optim.Adagrad`, and
    return the number of updates so far. Of `parameters`, the model's `named_parameters()`, those
    that the optimizer doesn't have are left out. Nothing is changed unless the file has the others.
    """
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    states: dict[str, dict[str, torch.Tensor]] = {
        name: optimizer.state.get(p, {}) for name, p in parameters if id(p) in optimized
    }
    if not all({"sum", "step"} <= state.keys() for state in states.values()):
        raise ValueError(
            f"the optimizer {type(optimizer).__name__} keeps no sums of squared gradients; only "
            "Adagrad can continue from a state of Adagrad"
        )
    with open_weight_file(path) as state_file:
        step = state_file.attrs.get(_STEP)
        if not isinstance(step, numpy.integer) or step < 0:
            raise ValueError(f"{path}: not a state of Adagrad (it has no number of steps)")
        for name, state in states.items():
            shape = tuple(state["sum"].shape)
            stored = state_file.get(name)
            found = stored.shape if is_float(stored) else "nothing"
            if found != shape:
                raise ValueError(
                    f"{path}: has {found} for the parameter {name!r} of shape {shape}; is it the "
                    "state of this model?"
                )
        for name, state in states.items():
            for start in range(0, len(state["sum"]), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                state["sum"][rows] = torch.from_numpy(state_file[name][rows])
            state["step"].fill_(int(step))
    return int(step)
