"""An LSTM layer with a clipped cell and projection, as in bilm-tf."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.kernels.matrix_product import product_type
from allennlp_elmo_plugin.bilm.kernels.model_call import check_layers, needs_grad
from allennlp_elmo_plugin.bilm.kernels.triton_support import runs_triton
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.recurrence import LstmState, LstmWeights, Recurrence, run_steps


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
        self._stacked: CachedValue[list[torch.Tensor]] = CachedValue()
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
        """Return the parameters after checking the layers."""
        # (4 * dim, projection_dim) twice, (4 * dim,), and (projection_dim, dim) if there is one
        check_layers(self, torch.nn.Linear)
        state = self.state_linearity
        weights = [self.input_linearity.weight, state.weight, state.bias]
        if self.state_projection is not None:
            weights.append(self.state_projection.weight)
        return weights

    def weights_in_use(self, dropout: float = 0.0) -> list[torch.Tensor]:
        """Return the weights with the forget bias added and, in training, dropout applied."""
        weight_input, weight_state, bias, *projection = self.weights
        if self.forget_bias:
            offset = torch.zeros_like(bias)
            offset[self.cell_size : 2 * self.cell_size] = self.forget_bias
            bias = bias + offset
        if dropout and self.training:
            weight_state = torch.nn.functional.dropout(weight_state, dropout)
        return [weight_input, weight_state, bias, *projection]

    def forward(self, *args: Any) -> NoReturn:
        raise NotImplementedError(
            "a single LSTM layer of ELMo can't be called: call the LSTM of all layers with the "
            "arguments (inputs, mask)"
        )

    @property
    def clips(self) -> tuple[float | None, float | None]:
        proj_clip = None if self.state_projection is None else self.state_projection_clip_value
        return self.memory_cell_clip_value, proj_clip

    def prepared_weights(self) -> LstmWeights:
        """Return the weights for `run_steps`."""

        def make() -> LstmWeights:
            return LstmWeights(self.weights_in_use(), self.clips, self.precision)

        weights = self.weights
        if weights[0].device.type != "cpu" and any(weight.requires_grad for weight in weights):
            return make()  # which is faster than to check whether the weights changed
        return self._prepared.get(weights, make, self.precision)


def run_layers(
    lstms: Sequence[ProjectedLstm],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    states: Sequence[LstmState],
    dropout: float = 0.0,
) -> list[tuple[torch.Tensor, LstmState]]:
    """
    Run layers as `run_steps` does, over a batch of at least one token, from `states` in the order
    of `packing.order`. If a call computes a gradient in training, a share `dropout` of the state's
    weights is set to zero (DropConnect, Merity et al. 2018). Return each layer's outputs, shape
    `(n_tokens, projection_dim)`, and the state after each sequence's last token.
    """
    if has_stacked_recurrence(lstms[0], inputs[0]):
        return _run_stacked(lstms, inputs, packing, states, dropout)
    sizes = packing.batch_sizes
    if needs_grad(*inputs, *(weight for lstm in lstms for weight in lstm.weights)):
        results = []
        for lstm, rows, state in zip(lstms, inputs, states):
            dtype, weights = product_type(rows, lstm.precision), lstm.weights_in_use(dropout)
            results.append(Recurrence.apply(state, sizes, lstm.clips, dtype, rows, *weights))
    else:
        layers = [lstm.prepared_weights() for lstm in lstms]
        outputs, cells = run_steps(layers, inputs, sizes, states)
        results = list(zip(outputs.to(cells.dtype), cells))
    return [(outputs, (outputs.detach()[packing.last], cells)) for outputs, cells in results]


def has_stacked_recurrence(lstm: ProjectedLstm, inputs: torch.Tensor) -> bool:
    """Return whether layers of all directions run in one launch on the device of the inputs."""
    return lstm.state_projection is not None and runs_triton(inputs)


def _run_stacked(
    lstms: Sequence[ProjectedLstm],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    states: Sequence[LstmState],
    dropout: float,
) -> list[tuple[torch.Tensor, LstmState]]:
    """Do what `run_layers` does by the kernels in Triton."""
    from allennlp_elmo_plugin.bilm.kernels import triton_recurrence

    state = torch.stack([outputs for outputs, _ in states]), torch.stack([c for _, c in states])
    dtype, clips = product_type(inputs[0], lstms[0].precision), lstms[0].clips
    steps = packing.batch_sizes, packing.starts
    weights = [weight for lstm in lstms for weight in lstm.weights]
    if needs_grad(*inputs, *weights):
        tensors = [
            tensor
            for lstm, rows in zip(lstms, inputs)
            for tensor in (rows, *lstm.weights_in_use(dropout))
        ]
        *outputs, cells = triton_recurrence.StackedRecurrence.apply(
            state, *steps, packing.last, clips, dtype, *tensors
        )
    else:

        def make() -> list[torch.Tensor]:
            in_use = zip(*(lstm.weights_in_use() for lstm in lstms))
            return [torch.stack(of_layers).to(dtype) for of_layers in in_use]

        if any(weight.requires_grad for weight in weights):
            stacks = make()
        else:
            stacks = lstms[0]._stacked.get(weights, make, dtype)
        rows = torch.stack([*inputs]).to(dtype)
        all_outputs, cells, *_ = triton_recurrence.run_stacked(rows, stacks, state, *steps, clips)
        outputs = list(all_outputs[:, packing.batch_sizes[0] :].to(cells.dtype))
    return [(rows, (rows.detach()[packing.last], last)) for rows, last in zip(outputs, cells)]


def glorot_uniform_(weight: torch.Tensor, in_dim: int, out_dim: int) -> torch.Tensor:
    """Fill a matrix of `in_dim` x `out_dim`, or part of one, as TensorFlow does by default."""
    limit = math.sqrt(6.0 / (in_dim + out_dim))
    return torch.nn.init.uniform_(weight, -limit, limit)
