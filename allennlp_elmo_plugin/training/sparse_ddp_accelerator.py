"""
Distributed training of tables of which a batch uses few rows, such as the softmax over negative
samples and the token embedding.
"""

import math
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
        a parameter: its batch touched no row. Where neighbours have gradients of the same rows, as
        the weight and the bias of a softmax, the rows' numbers are sent once.
    dtype : `torch.dtype`, optional (default = that of the gradients)
        The type in which rows are sent and added.
    """
    if not parameters:
        return
    gradients = [_gradient(parameter) for parameter in parameters]
    groups, largest = _group(gradients)
    for group, n_rows in zip(groups, largest):
        first = gradients[group[0]]
        if n_rows == 0:  # no rows anywhere, and gloo crashes on empty tensors
            for i in group:
                parameters[i].grad = gradients[i]
            continue
        if n_rows < 0:
            values = first.to_dense() if first.is_sparse else first  # (n_rows, ...)
            dist.all_reduce(values)
            parameters[group[0]].grad = values / dist.get_world_size()
            continue
        own_rows = first.indices()[0]  # (n_own_rows,)
        rows = _union(own_rows, n_rows)  # (n_rows,)
        shapes = [(len(rows), *parameters[i].shape[1:]) for i in group]
        sizes = [math.prod(shape) for shape in shapes]
        values = first.values().new_zeros(sum(sizes))  # of all of the group, one after the other
        parts = [part.view(shape) for part, shape in zip(values.split(sizes), shapes)]
        places = torch.searchsorted(rows, own_rows)  # (n_own_rows,)
        for i, part in zip(group, parts):
            part[places] = gradients[i].values()
        sent = values.to(dtype or values.dtype)  # `values` itself if the type is the same
        dist.all_reduce(sent)
        values.copy_(sent).div_(dist.get_world_size())
        for i, part in zip(group, parts):
            parameters[i].grad = torch.sparse_coo_tensor(
                rows.unsqueeze(0), part, parameters[i].shape
            )._coalesced_(True)


def _group(gradients: List[torch.Tensor]) -> Tuple[List[List[int]], List[int]]:
    """
    Return the numbers of the gradients, with those together that have the same rows in every
    process; and for each group the largest number of rows that a process has, or -1 if some process
    has a dense gradient, as of a regularised parameter. The processes agree on them.
    """
    facts = []  # the number of rows, and whether they are those of the gradient before
    before = None
    for gradient in gradients:
        rows = gradient.indices()[0] if gradient.is_sparse else None  # (n_own_rows,)
        is_same = rows is not None and before is not None and torch.equal(rows, before)
        facts.append([-1 if rows is None else len(rows), int(is_same)])
        before = rows
    own = torch.tensor(facts, device=gradients[0].device)  # (n_gradients, 2)
    found = torch.stack(_gather(own))  # (world_size, n_gradients, 2)
    groups: List[List[int]] = []
    largest: List[int] = []
    for i, ((least, is_same), (most, _)) in enumerate(
        zip(found.amin(0).tolist(), found.amax(0).tolist())
    ):
        if is_same:
            groups[-1].append(i)
        else:
            groups.append([i])
            largest.append(most if least >= 0 else -1)
    return groups, largest


def _gather(tensor: torch.Tensor) -> List[torch.Tensor]:
    """Return the tensors of all processes, which have the same shape."""
    tensors = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor)
    return tensors


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
    found = torch.unique(torch.cat(_gather(padded)))  # (1 + n_rows,) or (n_rows,), sorted
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
