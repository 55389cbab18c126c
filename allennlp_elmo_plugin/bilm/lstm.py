"""
An LSTM layer with clipped cell and projection, as bilm-tf has it.
"""

from typing import List, Optional, Sequence, Tuple

import torch

from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_
from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.kernels.matrix_product import PreparedMatrix, product_type
from allennlp_elmo_plugin.bilm.kernels.model_call import check_layers, needs_grad
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.recurrence import LayerWeights, LstmState, Recurrence, run_steps


class ProjectedLstm(CachingModule):
    """
    One layer of an LSTM in one direction with clipped cell and projected output: bilm-tf's
    `tf.nn.rnn_cell.LSTMCell(num_proj, cell_clip, proj_clip)`, with the parameter names, shapes and
    gate order (i, f, g, o) of AllenNLP's `LstmCellWithProjection`.

    ```
    i, f, o = sigmoid(...)   g = tanh(...)      of W x + U output' + b (+ forget_bias for f)
    cell    = clip(f * cell' + i * g)
    output  = clip(P (o * tanh(cell)))
    ```

    # Parameters

    input_dim, dim, projection_dim : `int`
        Sizes of an input, of the cell and of an output.
    cell_clip, proj_clip : `float`, optional (default = `None`)
        Bounds of cell and output.
    forget_bias : `float`, optional (default = `1.0`)
        Added to the forget gate at every use, as in bilm-tf. Use 0.0 for AllenNLP's state dicts,
        whose parameter includes it.
    project : `bool`, optional (default = if `dim != projection_dim`)
        Whether there is a projection, and a clip of it.
    device : `str`, optional
        See `BiLm`.
    """

    def __init__(
        self,
        input_dim: int,
        dim: int,
        projection_dim: int,
        cell_clip: Optional[float] = None,
        proj_clip: Optional[float] = None,
        forget_bias: float = 1.0,
        project: Optional[bool] = None,
        device: Optional[str] = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        # AllenNLP's names of them
        self.input_size, self.hidden_size, self.cell_size = input_dim, projection_dim, dim
        self.memory_cell_clip_value, self.state_projection_clip_value = cell_clip, proj_clip
        self.forget_bias = forget_bias
        self.input_linearity = torch.nn.Linear(input_dim, 4 * dim, bias=False, device=device)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * dim, device=device)
        self.state_projection = None
        if dim != projection_dim if project is None else project:
            self.state_projection = torch.nn.Linear(dim, projection_dim, bias=False, device=device)
        # Of the products: one of `PRECISIONS`.
        self.precision = "float32"
        self._prepared: CachedValue[LayerWeights] = CachedValue()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """
        Initialise as bilm-tf: Glorot uniform over the kernel that inputs and state share, biases 0.
        """
        in_dim = self.input_linearity.in_features + self.projection_dim
        glorot_uniform_(self.input_linearity.weight, in_dim, 4 * self.dim)
        glorot_uniform_(self.state_linearity.weight, in_dim, 4 * self.dim)
        torch.nn.init.zeros_(self.state_linearity.bias)
        if self.state_projection is not None:
            glorot_uniform_(self.state_projection.weight, self.dim, self.projection_dim)

    def forward(
        self,
        inputs: torch.Tensor,
        packing: PackedBatch,
        state: LstmState,
        recurrent_dropout: float = 0.0,
    ) -> Tuple[torch.Tensor, LstmState]:
        """
        Run the layer; see `run_layers`.
        """
        return run_layers([self], [inputs], packing, [state], recurrent_dropout)[0]

    @property
    def weights(self) -> List[torch.Tensor]:
        """
        The parameters, also in a replica of `DataParallel`, where torch finds none. Altered layers
        are refused; see `check_layers`.
        """
        check_layers(self, torch.nn.Linear)
        projection = self.state_projection
        return [
            self.input_linearity.weight,
            self.state_linearity.weight,
            self.state_linearity.bias,
            *([] if projection is None else [projection.weight]),
        ]

    def _bias(self) -> torch.Tensor:
        """
        Return the bias of the gates, which includes the forget bias, shape `(4 * dim,)`.
        """
        bias: torch.Tensor = self.state_linearity.bias
        if not self.forget_bias:
            return bias
        offset = torch.zeros_like(bias)
        offset[self.dim : 2 * self.dim] = self.forget_bias
        return bias + offset

    def prepared_weights(self) -> LayerWeights:
        """
        Return the weights for `run_steps` without a gradient, on the CPU prepared once for as long
        as they don't change.
        """
        if self.state_linearity.weight.device.type != "cpu":
            return self._prepare()
        return self._prepared.get(self.weights, self._prepare, self.precision)

    def _prepare(self) -> LayerWeights:
        bias = self._bias().detach()
        scales = torch.ones_like(bias)  # (4 * dim,)
        scales[2 * self.dim : 3 * self.dim] = 2.0
        inputs, state = (
            PreparedMatrix(linear.weight.t(), self.precision, scales)
            for linear in (self.input_linearity, self.state_linearity)
        )
        projection = self.state_projection
        return LayerWeights(
            inputs,
            (bias * scales).to(state.dtype),
            state,
            None if projection is None else PreparedMatrix(projection.weight.t(), self.precision),
            self.cell_clip,
            self.proj_clip,
            is_doubled=True,
        )

    def run_with_gradient(
        self, inputs: torch.Tensor, batch_sizes: List[int], state: LstmState, dropout: float
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        Return what `run_steps` does for this layer alone.
        """
        weight_state = self.state_linearity.weight
        if dropout and self.training:
            weight_state = torch.nn.functional.dropout(weight_state, dropout)
        projection = self.state_projection
        return Recurrence.apply(
            inputs,
            self.input_linearity.weight,
            weight_state,
            self._bias(),
            None if projection is None else projection.weight,
            state,
            batch_sizes,
            self.cell_clip,
            self.proj_clip,
            product_type(inputs, self.precision),
        )


def run_layers(
    lstms: Sequence[ProjectedLstm],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    states: Sequence[LstmState],
    recurrent_dropout: float = 0.0,
) -> List[Tuple[torch.Tensor, LstmState]]:
    """
    Run layers of one shape, such as those of two directions, over a batch with a token at least.

    # Parameters

    inputs : `Sequence[torch.Tensor]`
        Those of each layer, in packed order: shape `(n_tokens, input_dim)`.
    states : `Sequence[LstmState]`
        Outputs and cells before the first token, shapes `(n_sequences, projection_dim)` and
        `(n_sequences, dim)`, in the order of `packing.order`. They get no gradient.
    recurrent_dropout : `float`, optional (default = `0.0`)
        In training, the share of weights between an output and the next gates to set to zero
        (DropConnect, Merity et al. 2018), where a gradient is needed.

    # Returns

    For each layer its outputs `(n_tokens, projection_dim)`, and the state after each sequence's
    last token.
    """
    sizes = packing.batch_sizes
    if needs_grad(*inputs, *(weight for lstm in lstms for weight in lstm.weights)):
        results = [
            lstm.run_with_gradient(rows, sizes, state, recurrent_dropout)
            for lstm, rows, state in zip(lstms, inputs, states)
        ]
    else:
        layers = [lstm.prepared_weights() for lstm in lstms]
        outputs, cells = run_steps(layers, inputs, sizes, states)
        results = list(zip(outputs.to(cells.dtype), cells))
    return [(outputs, (outputs.detach()[packing.last], cells)) for outputs, cells in results]
