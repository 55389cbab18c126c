"""
Distributed training of tables of which a batch uses few rows, such as the softmax over negative
samples and the token embedding.
"""

import math
from itertools import accumulate
from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel, TorchDdpAccelerator
from torch.nn.parallel import DistributedDataParallel

from allennlp_elmo_plugin.registration import register_anew


def check_same(value: Any, what: str) -> None:
    """
    Compare a value in all processes of distributed training, each of which calls this function.

    # Raises

    `ConfigurationError`
        In all processes; it names those that differ from the first.
    """
    values: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    ranks = [str(rank) for rank, other in enumerate(values) if other != values[0]]
    if ranks:
        raise ConfigurationError(
            f"{what} of rank {', '.join(ranks)} differs from that of rank 0: copy the files of one "
            "machine to the others"
        )


def average_sparse_gradients(
    parameters: Sequence[torch.nn.Parameter], dtype: Optional[torch.dtype] = None
) -> None:
    """
    Replace the gradient of each parameter by its mean over all processes. Of sparse gradients only
    the rows that some process has are sent. All processes get the same numbers, to the bit.

    # Parameters

    parameters : `Sequence[torch.nn.Parameter]`
        The same in all processes, each of shape `(n_rows, ...)`. A process may have no gradient of
        a parameter: its batch touched no row.
    dtype : `torch.dtype`, optional (default = that of the gradients)
        The type in which rows are sent and added.
    """
    world_size = dist.get_world_size()
    parameters = list(parameters)
    for parameter in list(parameters):
        if parameter.grad is not None and not parameter.grad.is_sparse:  # It is regularised.
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
            parameters.remove(parameter)
    if not parameters:
        return
    gradients = [_sparse_gradient(parameter) for parameter in parameters]
    # The rows of all parameters are numbered one after the other.
    starts = list(accumulate((len(each) for each in parameters), initial=0))
    own_rows = [each.indices()[0] + start for each, start in zip(gradients, starts)]
    rows = _union(torch.cat(own_rows))  # (n_rows,)
    limits = torch.searchsorted(rows, rows.new_tensor(starts)).tolist()
    shapes = [
        (end - begin, *each.shape[1:]) for each, begin, end in zip(parameters, limits, limits[1:])
    ]
    sizes = [math.prod(shape) for shape in shapes]
    values = gradients[0].values().new_zeros(sum(sizes))
    parts = [part.view(shape) for part, shape in zip(values.split(sizes), shapes)]
    for part, gradient, own, begin in zip(parts, gradients, own_rows, limits):
        part[torch.searchsorted(rows, own) - begin] = gradient.values()
    if len(rows):  # gloo crashes on empty tensors
        sent = values.to(dtype or values.dtype)  # `values` itself if the type is the same
        dist.all_reduce(sent)
        values.copy_(sent).div_(world_size)
    for i, part in enumerate(parts):
        indices = rows[limits[i] : limits[i + 1]] - starts[i]
        parameters[i].grad = torch.sparse_coo_tensor(
            indices.unsqueeze(0), part, parameters[i].shape
        )._coalesced_(True)


def _sparse_gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a parameter's gradient coalesced, without rows if there is none."""
    if parameter.grad is not None:
        return parameter.grad.coalesce()
    rows = torch.zeros(1, 0, dtype=torch.long, device=parameter.device)  # (1, 0)
    no_values = parameter.detach()[:0]  # (0, ...)
    return torch.sparse_coo_tensor(rows, no_values, parameter.shape).coalesce()


def _union(rows: torch.Tensor) -> torch.Tensor:
    """Return the sorted numbers of all processes' rows; `rows` are those of this process."""
    largest = rows.new_tensor(len(rows))
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    if largest == 0:
        return rows
    padded = rows.new_full((int(largest),), -1)  # (largest,)
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
        self,
        model: torch.nn.Module,
        sparse_parameters: List[torch.nn.Parameter],
        dtype: Optional[torch.dtype],
        **kwargs: Any,
    ) -> None:
        super().__init__(model, **kwargs)
        self._sparse_parameters = sparse_parameters
        self._dtype = dtype

    def average_sparse_gradients(self) -> None:
        """To be called in all processes after the last backward pass before an update."""
        average_sparse_gradients(self._sparse_parameters, self._dtype)


@register_anew(DdpAccelerator, "torch")
class SparseDdpAccelerator(TorchDdpAccelerator):
    """
    AllenNLP's accelerator "torch", for language models with sparse gradients, too, which torch's
    `DistributedDataParallel` does not average: it gets the other parameters only.

    It replaces "torch", AllenNLP's default. Other models are wrapped as AllenNLP wraps them.

    # Parameters

    Those of `TorchDdpAccelerator`, and:

    sparse_gradient_dtype : `str`, optional (default = `"float32"`)
        "bfloat16" to send and add sparse gradients with half of the bytes.
    """

    def __init__(self, *, sparse_gradient_dtype: str = "float32", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if sparse_gradient_dtype not in ("float32", "bfloat16"):
            raise ConfigurationError(
                f"sparse_gradient_dtype is {sparse_gradient_dtype!r}, but must be "
                '"float32" or "bfloat16"'
            )
        self._dtype = torch.bfloat16 if sparse_gradient_dtype == "bfloat16" else None

    def wrap_model(self, model: Any) -> Tuple[Model, DdpWrappedModel]:
        """
        Wrap a model. Language models have the method `sparse_gradient_parameters`, which returns
        the parameters whose gradients are sparse in training.
        """
        if not hasattr(model, "sparse_gradient_parameters"):
            return super().wrap_model(model)
        parameters: List[torch.nn.Parameter] = model.sparse_gradient_parameters()
        ignored = {id(parameter) for parameter in parameters}
        if all(id(p) in ignored for p in model.parameters() if p.requires_grad):
            # `DistributedDataParallel` refuses a model without any gradient to average.
            model = model.to(self.cuda_device)
            to_send = list(model.state_dict().values())
            wrapped: Any = model
        else:
            names = [
                f"{prefix}.{name}" if prefix else name  # also the second name of a shared parameter
                for prefix, module in model.named_modules()
                for name, parameter in module.named_parameters(recurse=False)
                if id(parameter) in ignored
            ]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
            model, by_torch = super().wrap_model(model)
            to_send = [parameter.detach() for parameter in parameters]
            wrapped = by_torch.model
            # The optimizer's groups and `no_grad` know the names without "module.".
            wrapped.named_parameters = model.named_parameters
        for tensor in to_send:
            dist.broadcast(tensor, 0)
        return model, SparseDdpWrappedModel(
            wrapped,
            parameters,
            self._dtype,
            local_rank=self.local_rank,
            world_size=self.world_size,
        )
