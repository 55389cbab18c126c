"""
Distributed training of tables of which a batch uses few rows, such as the softmax over negative
samples and the token embedding.
"""

from typing import Any, List, Sequence, Tuple

import torch
import torch.distributed as dist
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel, TorchDdpAccelerator
from torch.nn.parallel import DistributedDataParallel

from allennlp_elmo_plugin.registration import register_anew


def average_sparse_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """
    Replace the gradient of each parameter by its mean over all processes. Of sparse gradients only
    the rows that some process has are sent. All processes get the same numbers, to the bit.

    # Parameters

    parameters : `Sequence[torch.nn.Parameter]`
        The same in all processes, each of shape `(n_rows, ...)`. A process may have no gradient of
        a parameter: its batch touched no row.
    """
    for parameter in parameters:
        gradient = _gradient(parameter)
        own_rows = gradient.indices()[0] if gradient.is_sparse else None  # (n_own_rows,)
        # -1 rows where the gradient is dense, as that of a regularised parameter is.
        n_rows = gradient.new_tensor(-1 if own_rows is None else len(own_rows), dtype=torch.long)
        all_n_rows = [torch.empty_like(n_rows) for _ in range(dist.get_world_size())]
        dist.all_gather(all_n_rows, n_rows)
        counts = torch.stack(all_n_rows).tolist()
        if own_rows is None or min(counts) < 0:
            values = gradient.to_dense() if gradient.is_sparse else gradient  # (n_rows, ...)
            dist.all_reduce(values)
            parameter.grad = values / dist.get_world_size()
            continue
        if max(counts) == 0:
            parameter.grad = gradient  # no rows anywhere, and gloo crashes on empty tensors
            continue
        rows = _union(own_rows, max(counts))  # (n_rows,)
        values = gradient.values().new_zeros(len(rows), *parameter.shape[1:])  # (n_rows, ...)
        if len(own_rows) > 0:  # otherwise torch 1.12 may have no values of the right shape
            values[torch.searchsorted(rows, own_rows)] = gradient.values()
        dist.all_reduce(values)
        values /= dist.get_world_size()
        parameter.grad = torch.sparse_coo_tensor(
            rows.unsqueeze(0), values, parameter.shape
        )._coalesced_(True)


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a parameter's gradient, coalesced if it is sparse; no rows if there is none."""
    if parameter.grad is not None:
        return parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad
    rows = torch.zeros(1, 0, dtype=torch.long, device=parameter.device)  # (1, 0)
    no_values = parameter.detach()[:0]  # (0, ...)
    return torch.sparse_coo_tensor(rows, no_values, parameter.shape).coalesce()


def _union(rows: torch.Tensor, largest: int) -> torch.Tensor:
    """
    Return the sorted numbers of all processes' rows.

    # Parameters

    rows : `torch.Tensor`
        Those of this process, distinct, shape `(n_own_rows,)`.
    largest : `int`
        The largest `n_own_rows` of a process.
    """
    padded = rows.new_full((largest,), -1)  # (largest,)
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, padded)
    found = torch.unique(torch.cat(gathered))  # (1 + n_rows,) or (n_rows,), sorted
    return found[found >= 0]


class SparseDdpWrappedModel(DdpWrappedModel):
    """
    A model in `DistributedDataParallel`, which averages dense gradients in the backward pass, and
    the parameters whose gradients are sparse.
    """

    def __init__(
        self, model: torch.nn.Module, sparse_parameters: List[torch.nn.Parameter], **kwargs: Any
    ) -> None:
        super().__init__(model, **kwargs)
        self._sparse_parameters = sparse_parameters

    def average_sparse_gradients(self) -> None:
        """To be called in all processes after the last backward pass before an update."""
        average_sparse_gradients(self._sparse_parameters)


@register_anew(DdpAccelerator, "torch")
class SparseDdpAccelerator(TorchDdpAccelerator):
    """
    AllenNLP's accelerator "torch", for models with sparse gradients, too, which torch's
    `DistributedDataParallel` does not average: it gets the other parameters only.

    It replaces "torch", AllenNLP's default. Other models are wrapped as AllenNLP wraps them.

    # Parameters

    Those of `TorchDdpAccelerator`.
    """

    def wrap_model(self, model: Model) -> Tuple[Model, DdpWrappedModel]:
        """
        Wrap a model. Its method `sparse_gradient_parameters`, if it has one, returns the parameters
        whose gradients are sparse in training.
        """
        find: Any = getattr(model, "sparse_gradient_parameters", list)
        parameters: List[torch.nn.Parameter] = find()
        if not parameters:
            return super().wrap_model(model)
        ignored = {id(parameter) for parameter in parameters}
        if all(id(p) in ignored for p in model.parameters() if p.requires_grad):
            # `DistributedDataParallel` refuses a model without any gradient to average.
            model = model.to(self.cuda_device)
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
            return model, SparseDdpWrappedModel(
                model,
                parameters,
                local_rank=self.local_rank,
                world_size=self.world_size,
            )
        names = [
            f"{prefix}.{name}" if prefix else name  # also the second name of a shared parameter
            for prefix, module in model.named_modules()
            for name, parameter in module.named_parameters(recurse=False)
            if id(parameter) in ignored
        ]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        model, wrapped = super().wrap_model(model)
        for parameter in parameters:
            dist.broadcast(parameter.detach(), 0)
        return model, SparseDdpWrappedModel(
            wrapped.model,
            parameters,
            local_rank=wrapped.local_rank,
            world_size=wrapped.world_size,
        )
