"""The state of Adagrad as an HDF5 file: for each parameter the sum of its squared gradients."""

import os
from typing import Dict, Iterable, Iterator, Tuple, Union

import numpy
import torch

from allennlp_elmo_plugin.files.hdf5_file import is_float, open_weight_file
from allennlp_elmo_plugin.files.whole import LateErrorFile, whole_file

_STEP = "step"
# Rows of a table are read in pieces of this size.
_CHUNK_BYTES = 2**26


def write_adagrad_state(
    path: Union[str, "os.PathLike[str]"],
    accumulators: Iterable[Tuple[str, torch.Tensor]],
    step: int,
) -> None:
    """
    Write the name and the sum of each parameter, and the number of updates so far (`step`), whole
    or not at all.
    """
    import h5py

    with (
        whole_file(path) as staged,
        LateErrorFile(staged) as file,
        h5py.File(file, "w") as state_file,
    ):
        state_file.attrs[_STEP] = step
        for name, values in accumulators:
            state_file.create_dataset(name, data=values.detach().cpu().numpy())


def read_adagrad_state(
    path: Union[str, "os.PathLike[str]"],
    parameters: Iterable[Tuple[str, torch.Tensor]],
    optimizer: torch.optim.Optimizer,
) -> int:
    """
    Copy the state that `write_adagrad_state` wrote into the memory of an optimizer, and return the
    number of updates so far.

    # Parameters

    path : `str`
    parameters : `Iterable[Tuple[str, torch.Tensor]]`
        The model's `named_parameters()`. Those that the optimizer does not have are left out.
    optimizer : `torch.optim.Optimizer`
        `torch.optim.Adagrad`, or one that keeps `sum` and `step` as it does. Nothing is changed
        unless the file has all of its parameters.
    """
    states = dict(_states(parameters, optimizer))
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
            _copy(state_file[name], state["sum"])
            state["step"].fill_(int(step))
    return int(step)


def _states(
    parameters: Iterable[Tuple[str, torch.Tensor]], optimizer: torch.optim.Optimizer
) -> Iterator[Tuple[str, Dict[str, torch.Tensor]]]:
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in parameters:
        if id(parameter) in optimized:
            state = optimizer.state.get(parameter, {})
            if "sum" not in state or "step" not in state:
                raise ValueError(
                    f"the optimizer {type(optimizer).__name__} keeps no sums of squared gradients; "
                    "only Adagrad can continue from a state of Adagrad"
                )
            yield name, state


def _copy(stored: "numpy.ndarray", target: torch.Tensor) -> None:
    if target.dim() == 0:
        target.fill_(float(stored[()]))
        return
    row_bytes = max(1, target[:1].numel() * target.element_size())
    rows = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, target.size(0), rows):
        target[start : start + rows].copy_(torch.from_numpy(stored[start : start + rows]))
