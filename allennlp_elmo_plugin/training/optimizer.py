"""The optimizers of language models, and the clipping of gradients, of which some are sparse."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch

Groups = list[dict[str, Any]]


def split_groups(groups: Groups) -> tuple[Groups, Groups]:
    """Return the groups of an optimizer with their dense and with their sparse gradients alone."""
    parts: tuple[Groups, Groups] = [], []
    for group in groups:
        split: tuple[list[Any], list[Any]] = [], []
        for parameter in group["params"]:
            split[parameter.grad is not None and parameter.grad.is_sparse].append(parameter)
        for part, parameters in zip(parts, split):
            part.append({**group, "params": parameters})
    return parts


class Adagrad(torch.optim.Adagrad):
    """
    torch's Adagrad for any mixture of dense and sparse gradients. On a GPU torch updates the
    parameters of a group together, unless one of them has a sparse gradient. So each step splits
    the groups by the kind of gradient; schedules and checkpoints see the original groups.
    """

    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        dense, sparse = split_groups(self.param_groups)
        _step(torch.optim.Adagrad, self, dense + sparse)
        return loss


class Adam(torch.optim.Adam):
    """torch's Adam, and its `SparseAdam` for sparse gradients."""

    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        dense, sparse = split_groups(self.param_groups)
        _step(torch.optim.Adam, self, dense)
        _step(torch.optim.SparseAdam, self, sparse)
        return loss


def _step(kind: type[torch.optim.Optimizer], optimizer: Any, groups: Groups) -> None:
    """Update some groups by the step of one of torch's optimizers."""
    step: Any = kind.step
    # Once torch has made one of this kind, its `step` also calls the hooks, as ours does.
    step = step.__wrapped__ if hasattr(step, "hooked") else step
    original, optimizer.param_groups = optimizer.param_groups, groups
    try:
        step(optimizer)
    finally:
        optimizer.param_groups = original


class OptimizerKind(NamedTuple):
    """
    What `Trainer` and `elmo-train` know of an optimizer: a function that makes it from parameters
    and a learning rate, its default rate, whether the rate rises for some batches and then falls to
    0, and whether it has the sums of squared gradients of `adagrad.hdf5`.
    """

    make: Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer]
    learning_rate: float
    warms_up: bool = False
    has_sums: bool = False


OPTIMIZERS = {
    # as in bilm-tf
    "adagrad": OptimizerKind(
        partial(Adagrad, initial_accumulator_value=1.0, eps=0.0), 0.2, has_sums=True
    ),
    "adam": OptimizerKind(Adam, 0.002, warms_up=True),
}
"""The optimizers by their names in the settings of a training."""


def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """
    `torch.nn.utils.clip_grad_norm_` for any mixture of dense and sparse gradients. Sparse gradients
    are coalesced: the gradients of a row are summed, as in a dense gradient.
    """
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    stand_ins = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.is_sparse:
            parameter.grad = gradient = gradient.coalesce()
            # Shape: (rows with a gradient, ...); shares memory with the gradient
            values = gradient._values()
            parameter = values.detach()
            parameter.grad = values
        stand_ins.append(parameter)
    return torch.nn.utils.clip_grad_norm_(stand_ins, *args, **kwargs)
