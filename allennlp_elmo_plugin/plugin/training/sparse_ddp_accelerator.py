"""Distributed training of parameters with sparse gradients, such as a sampled softmax."""

from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator, DdpWrappedModel, TorchDdpAccelerator
from torch.nn.parallel import DistributedDataParallel

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.training.processes import average_sparse_gradients


class SparseDdpWrappedModel(DdpWrappedModel):
    """A model in `DistributedDataParallel`, which leaves out its `sparse_parameters`."""

    sparse_parameters: Sequence[torch.nn.Parameter] = ()
    dtype: Optional[torch.dtype] = None

    def average_sparse_gradients(self) -> None:
        """See the function of this name."""
        average_sparse_gradients(self.sparse_parameters, self.dtype)


@override_registered(DdpAccelerator, "torch")
class SparseDdpAccelerator(TorchDdpAccelerator):
    """
    AllenNLP's default accelerator, "torch". For language models it averages sparse gradients
    itself, as torch's `DistributedDataParallel` can't. With `sparse_gradient_dtype` "bfloat16" it
    sends and adds them with half of the bytes of "float32", the default.
    """

    def __init__(self, *, sparse_gradient_dtype: str = "float32", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if sparse_gradient_dtype not in ("float32", "bfloat16"):
            raise ConfigurationError(
                f"sparse_gradient_dtype is {sparse_gradient_dtype!r}; use float32 or bfloat16"
            )
        self._dtype = torch.bfloat16 if sparse_gradient_dtype == "bfloat16" else None

    def wrap_model(self, model: Model) -> tuple[Model, DdpWrappedModel]:
        if not isinstance(model, BidirectionalLanguageModel):
            return super().wrap_model(model)
        parameters = model.sparse_gradient_parameters()
        ignored = {id(parameter) for parameter in parameters}
        # With both names of a shared parameter
        named = model.named_parameters(remove_duplicate=False)
        names = [name for name, parameter in named if id(parameter) in ignored]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        model, by_torch = super().wrap_model(model)
        for parameter in parameters:
            dist.broadcast(parameter.detach(), 0)
        # Configs name parameters without the prefix "module." of `DistributedDataParallel`.
        by_torch.model.named_parameters = model.named_parameters  # type: ignore[method-assign]
        wrapped = SparseDdpWrappedModel(by_torch.model, self.local_rank, self.world_size)
        wrapped.sparse_parameters, wrapped.dtype = parameters, self._dtype
        return model, wrapped
