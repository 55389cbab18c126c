"""Adagrad and the clipping of gradients, of which some are sparse."""

from typing import Any

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


class SplitGroups:
    """
    A mixin for torch's optimizers. On a GPU torch updates the parameters of a group together,
    unless one of them has a sparse gradient. So each step splits the groups by the kind of
    gradient; schedules and checkpoints see the original groups.
    """

    param_groups: Groups

    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        dense, sparse = split_groups(groups)
        self.param_groups = dense + sparse
        try:
            return super().step(closure)  # type: ignore[misc]
        finally:
            self.param_groups = groups


class Adagrad(SplitGroups, torch.optim.Adagrad):
    """torch's Adagrad, made fast on a GPU when some gradients are sparse."""


class Adam(torch.optim.Adam):
    """torch's Adam, and its `SparseAdam` for sparse gradients."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        groups: Groups = self.param_groups
        dense, sparse = split_groups(groups)
        try:
            self.param_groups = dense
            super().step(closure)
            self.param_groups = sparse
            torch.optim.SparseAdam.step(self)  # type: ignore[arg-type]
        finally:
            self.param_groups = groups


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
