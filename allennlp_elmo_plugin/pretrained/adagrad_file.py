"""The state of Adagrad as an HDF5 file: for each parameter the sum of its squared gradients."""

from collections.abc import Iterable

import numpy as np
import torch

from allennlp_elmo_plugin.files.atomic import LateErrorFile, PathLike
from allennlp_elmo_plugin.files.hdf5_file import is_float, open_weight_file

ROWS_AT_ONCE = 2**14
NamedTensors = Iterable[tuple[str, torch.Tensor]]


def write_adagrad_state(path: PathLike, accumulators: NamedTensors, step: int) -> None:
    """Write the name and the sum of each parameter, and the number of updates so far (`step`)."""
    import h5py

    with LateErrorFile(path) as file, h5py.File(file, "w") as state_file:
        state_file.attrs["step"] = step
        for name, values in accumulators:
            state_file.create_dataset(name, data=values.detach().cpu().numpy())


def read_adagrad_state(
    path: PathLike, parameters: NamedTensors, optimizer: torch.optim.Optimizer
) -> int:
    """
    Copy the state that `write_adagrad_state` wrote into a `torch.optim.Adagrad`, and return the
    number of updates so far. Of the model's `named_parameters()`, those that the optimizer doesn't
    have are skipped. Nothing changes unless the file has all others.
    """
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    states = {name: optimizer.state.get(p, {}) for name, p in parameters if id(p) in optimized}
    if not all({"sum", "step"} <= state.keys() for state in states.values()):
        raise ValueError(
            f"the optimizer {type(optimizer).__name__} keeps no sums of squared gradients; only "
            "Adagrad can continue from a state of Adagrad"
        )
    with open_weight_file(path) as state_file:
        step = state_file.attrs.get("step")
        if not isinstance(step, np.integer) or step < 0:
            raise ValueError(f"{path}: not a state of Adagrad (it has no number of steps)")
        for name, state in states.items():
            shape, stored = tuple(state["sum"].shape), state_file.get(name)
            stored_shape = stored.shape if is_float(stored) else "nothing"
            if stored_shape != shape:
                raise ValueError(
                    f"{path}: has {stored_shape} for the parameter {name!r} of shape {shape}; is "
                    "it the state of this model?"
                )
        for name, state in states.items():
            for start in range(0, len(state["sum"]), ROWS_AT_ONCE):
                rows = slice(start, start + ROWS_AT_ONCE)
                state["sum"][rows] = torch.from_numpy(state_file[name][rows])
            state["step"].fill_(int(step))
    return int(step)
