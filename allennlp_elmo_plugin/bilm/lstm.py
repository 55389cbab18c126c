"""An LSTM layer with a clipped cell and projection, as in bilm-tf."""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch

from allennlp_elmo_plugin.bilm.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.kernels.dispatch import recurrence_for
from allennlp_elmo_plugin.bilm.kernels.recurrence import LstmState, LstmWeights
from allennlp_elmo_plugin.bilm.model_call import needs_grad
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch


class ProjectedLstm(CachingModule):
    """
    An LSTM layer of one direction, with the parameter names, shapes and gate order (i, f, g, o) of
    AllenNLP's `LstmCellWithProjection`. Without a projection `P`, the output isn't clipped.

    ```
    i, f, o = sigmoid(...)   g = tanh(...)      of W x + U output' + b (+ forget_bias for f)
    cell    = clip(f * cell' + i * g)
    output  = clip(P (o * tanh(cell)))
    ```
    """

    def __init__(
        self, options: BiLmOptions, forget_bias: float = 1.0, device: str | None = None
    ) -> None:
        super().__init__()
        dim, projection_dim = options.lstm_dim, options.projection_dim
        self.forget_bias = forget_bias
        # AllenNLP's names
        self.input_size, self.hidden_size, self.cell_size = projection_dim, projection_dim, dim
        self.memory_cell_clip_value = options.cell_clip
        self.state_projection_clip_value = options.proj_clip
        self.input_linearity = torch.nn.Linear(projection_dim, 4 * dim, bias=False, device=device)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * dim, device=device)
        self.state_projection = None
        if options.projects_lstm:
            self.state_projection = torch.nn.Linear(dim, projection_dim, bias=False, device=device)
        self.precision = "float32"
        self._prepared: CachedValue[LstmWeights] = CachedValue()
        if device != "meta":  # whose parameters get their values when weights are loaded
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as bilm-tf, where inputs and state share one matrix."""
        in_dim = self.input_size + self.hidden_size
        glorot_uniform_(self.input_linearity.weight, in_dim, 4 * self.cell_size)
        glorot_uniform_(self.state_linearity.weight, in_dim, 4 * self.cell_size)
        torch.nn.init.zeros_(self.state_linearity.bias)
        if self.state_projection is not None:
            glorot_uniform_(self.state_projection.weight, self.cell_size, self.hidden_size)

    @property
    def weights(self) -> list[torch.Tensor]:
        # (4 * dim, projection_dim) twice, (4 * dim,), and (projection_dim, dim) if there is one
        state = self.state_linearity
        weights = [self.input_linearity.weight, state.weight, state.bias]
        if self.state_projection is not None:
            weights.append(self.state_projection.weight)
        return weights

    def forward(self, *args: Any) -> NoReturn:
        raise NotImplementedError(
            "a single LSTM layer of ELMo can't be called: call the LSTM of all layers with the "
            "arguments (inputs, mask)"
        )

    @property
    def clips(self) -> tuple[float | None, float | None]:
        proj_clip = None if self.state_projection is None else self.state_projection_clip_value
        return self.memory_cell_clip_value, proj_clip

    @property
    def kernel(self) -> ModuleType:
        """The module of `kernels` that runs this layer."""
        return recurrence_for(self.state_linearity.weight, self.state_projection is not None)

    def weights_of_call(self, has_gradient: bool, dropout: float) -> LstmWeights:
        """
        Return the weights with the forget bias added and, in training, dropout applied; with what
        inference computes from them, kept where it may be.
        """
        weights = self.weights

        def make() -> LstmWeights:
            weight_input, weight_state, bias, *projection = weights
            if self.forget_bias:
                offset = torch.zeros_like(bias)
                offset[self.cell_size : 2 * self.cell_size] = self.forget_bias
                bias = bias + offset
            if dropout and has_gradient and self.training:
                weight_state = torch.nn.functional.dropout(weight_state, dropout)
            in_use = [weight_input, weight_state, bias, *projection]
            return LstmWeights(in_use, self.clips, self.precision)

        # On a GPU, checking whether trainable weights have changed takes longer than it saves.
        is_trained = any(weight.requires_grad for weight in weights)
        if has_gradient or (is_trained and weights[0].device.type != "cpu"):
            return make()
        return self._prepared.get(weights, make, self.precision)


def run_layers(
    lstms: Sequence[ProjectedLstm],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    state: LstmState,
    dropout: float = 0.0,
) -> tuple[Sequence[torch.Tensor], LstmState]:
    """
    Run layers of one shape, such as those of two directions, over packed inputs of at least one
    token, shape `(n_tokens, projection_dim)`, from `state` in the order of `packing.order`. If a
    call computes a gradient in training, a share `dropout` of the state's weights is set to zero
    (DropConnect, Merity et al. 2018). Return each layer's outputs, shape `(n_tokens,
    projection_dim)`, and the state after each sequence's last token.
    """
    has_gradient = needs_grad(*inputs, *(weight for lstm in lstms for weight in lstm.weights))
    layers = [lstm.weights_of_call(has_gradient, dropout) for lstm in lstms]
    outputs, cells = lstms[0].kernel.run(layers, inputs, packing, state, has_gradient)
    return outputs, (torch.stack([rows.detach()[packing.last] for rows in outputs]), cells)


def glorot_uniform_(weight: torch.Tensor, in_dim: int, out_dim: int) -> torch.Tensor:
    """Fill a matrix of `in_dim` x `out_dim`, or part of one, as TensorFlow does by default."""
    limit = math.sqrt(6.0 / (in_dim + out_dim))
    return torch.nn.init.uniform_(weight, -limit, limit)
