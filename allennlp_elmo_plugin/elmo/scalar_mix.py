"""The learned mix of a language model's layers."""

from collections.abc import Sequence

import torch


class ScalarMix(torch.nn.Module):
    """
    Computes `gamma * sum(softmax(w) * layers)` (Peters et al. 2018, equation 1), with the arguments
    and parameter names of AllenNLP's class.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self.mixture_size, self.do_layer_norm = mixture_size, do_layer_norm
        default = [0.0] * mixture_size
        initial = default if initial_scalar_parameters is None else initial_scalar_parameters
        if len(initial) != mixture_size:
            raise ValueError(
                f"{initial} has {len(initial)} weights, but the model has {mixture_size} layers"
            )
        self.scalar_parameters = torch.nn.ParameterList(
            torch.nn.Parameter(torch.tensor([value], dtype=torch.float), requires_grad=trainable)
            for value in initial
        )
        self.gamma = torch.nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(
        self, tensors: Sequence[torch.Tensor], mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Mix layers of one shape. With `do_layer_norm`, a layer is normalised over its tokens in
        `mask`, shape `(batch_size, timesteps)`, and all their features.
        """
        if len(tensors) != self.mixture_size:
            raise ValueError(f"got {len(tensors)} layers to mix, but there are {self.mixture_size}")
        if self.do_layer_norm:
            assert mask is not None
            tensors = [_normalise(tensor, mask.unsqueeze(-1)) for tensor in tensors]
        weights = torch.cat([*self.scalar_parameters]).softmax(0).split(1)
        return self.gamma * sum(weight * tensor for weight, tensor in zip(weights, tensors))


def _normalise(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    n_values = mask.sum() * tensor.size(-1)
    masked = tensor * mask
    mean = masked.sum() / n_values
    variance = (((masked - mean) * mask) ** 2).sum() / n_values
    tiny = 1e-4 if variance.dtype == torch.half else 1e-13
    return (tensor - mean) / (variance + tiny).sqrt()
