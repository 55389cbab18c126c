"""
An LSTM layer with clipped cell and projection, as bilm-tf has it: with a gradient, and without one
for several layers at once.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from allennlp_elmo_plugin.bilm.bfloat16_recurrence import Bfloat16Recurrence
from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_
from allennlp_elmo_plugin.bilm.input_gates import input_gates
from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule
from allennlp_elmo_plugin.bilm.kernels.gradients import (
    clamp_backward_,
    once_differentiable,
    sigmoid_backward,
    tanh,
    tanh_backward,
)
from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    PreparedMatrix,
    matrix_product,
    product_type,
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import (
    check_layers,
    may_overwrite_saved,
    needs_grad,
    without_autocast,
)
from allennlp_elmo_plugin.bilm.lstm_steps import Clips, Steps, StepWeights, empty_apart
from allennlp_elmo_plugin.bilm.packing import PackedBatch

LstmState = Tuple[torch.Tensor, torch.Tensor]


class _InferenceWeights(NamedTuple):
    """
    The weights of a layer as `run_in_step` uses them. Those of the candidate are doubled; see
    `tanh`.
    """

    input: PreparedMatrix
    bias: torch.Tensor
    of_step: StepWeights

    def input_gates(self, rows: torch.Tensor) -> torch.Tensor:
        return self.input.product(rows, self.bias)


def run_in_step(
    lstms: Sequence["ProjectedLstm"],
    inputs: Sequence[torch.Tensor],
    batch_sizes: List[int],
    states: Sequence[LstmState],
) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """
    Run layers of one shape step by step together (see `Steps`), without a gradient.

    For each layer the inputs are packed, shape `(n_tokens, input_dim)`, and the states are output
    and memory before the first token, shapes `(n_sequences, projection_dim)` and `(n_sequences,
    dim)`.

    # Returns

    For each layer its outputs `(n_tokens, projection_dim)` and final memory `(n_sequences, dim)`.
    """
    weights = [lstm.inference_weights() for lstm in lstms]
    dtype = weights[0].of_step.state.dtype
    memories = torch.stack([memory for _, memory in states])  # (n_layers, n_sequences, dim)
    n_tokens, projection_dim = inputs[0].size(0), states[0][0].size(1)
    outputs = empty_apart(memories, dtype, len(lstms), n_tokens, projection_dim)
    from_inputs = [
        input_gates(rows.to(dtype), layer.input_gates, lstms[0].dim, batch_sizes)
        for rows, layer in zip(inputs, weights)
    ]
    before = [output.to(dtype) for output, _ in states]  # (n_sequences, projection_dim) each
    clips = Clips(lstms[0].cell_clip, lstms[0].proj_clip)
    steps = Steps([layer.of_step for layer in weights], clips, before, memories)
    start = 0
    for size, *from_inputs_of_step in zip(batch_sizes, *from_inputs):
        # (n_layers, size, projection_dim)
        steps.run(from_inputs_of_step, outputs[:, start : start + size])
        start += size
    return list(zip(outputs.to(memories.dtype), memories))


class _Recurrence(torch.autograd.Function):
    """
    The recurrence with its gradient. It keeps the activated gates of all steps, from which the
    backward pass computes the memories again, and the gradient of each weight is one matrix product
    after the loop. No gradient reaches the initial state, where truncated back-propagation stops.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight_input: torch.Tensor,
        weight_state: torch.Tensor,
        bias: torch.Tensor,
        weight_projection: Optional[torch.Tensor],
        state: LstmState,
        batch_sizes: List[int],
        cell_clip: Optional[float],
        proj_clip: Optional[float],
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        initial_output, initial_memory = state
        n_tokens, dim, dtype = inputs.size(0), initial_memory.size(1), inputs.dtype
        weight_input, weight_state = weight_input.to(dtype), weight_state.to(dtype)
        bias = bias.to(dtype)
        if weight_projection is not None:
            weight_projection = weight_projection.to(dtype)
        gates = initial_memory.new_empty(n_tokens, 4 * dim)
        memories = initial_memory.clone()  # (n_sequences, dim)
        workspace = torch.empty_like(memories)
        outputs = inputs.new_empty(n_tokens, initial_output.size(1))
        previous_output = initial_output
        # Laid out once for all steps.
        from_state = PreparedMatrix(weight_state.t())
        project = None if weight_projection is None else PreparedMatrix(weight_projection.t())
        start = 0
        from_all_inputs = input_gates(
            inputs, lambda rows: matrix_product(rows, weight_input.t(), bias), dim, batch_sizes
        )
        for size, from_inputs in zip(batch_sizes, from_all_inputs):
            step = slice(start, start + size)
            raw = from_state.product(previous_output[:size], add=from_inputs)  # (size, 4 * dim)
            # See `tanh`.
            raw[:, 2 * dim : 3 * dim].mul_(2)
            torch.sigmoid(raw, out=gates[step])
            candidate, out_gate = gates[step].chunk(4, 1)[2:]  # (size, dim) each
            candidate.mul_(2).sub_(1)
            memory = _next_memory(gates[step], memories[:size], cell_clip, out=memories[:size])
            tanh_memory = tanh(memory, out=workspace[:size])  # (size, dim)
            hidden = tanh_memory.mul_(out_gate)  # (size, dim)
            if project is not None:
                hidden = project.product(hidden)  # (size, projection_dim)
                if proj_clip is not None:
                    hidden.clamp_(-proj_clip, proj_clip)
            outputs[step] = hidden
            previous_output = outputs[step]
            start += size
        ctx.save_for_backward(
            inputs, weight_input, weight_state, weight_projection, *state, outputs, gates
        )
        ctx.batch_sizes, ctx.cell_clip, ctx.proj_clip = batch_sizes, cell_clip, proj_clip
        ctx.mark_non_differentiable(memories)
        return outputs, memories

    @staticmethod
    @once_differentiable
    @without_autocast()
    def backward(ctx: Any, grad_outputs: torch.Tensor, _: Any) -> Any:
        # Read once: gradient checkpointing frees them after that.
        saved = ctx.saved_tensors
        inputs, weight_input, weight_state, weight_projection = saved[:4]
        initial_output, initial_memory, outputs, gates = saved[4:]
        needs_inputs, needs_input, needs_state, _, needs_projection = ctx.needs_input_grad[:5]
        batch_sizes: List[int] = ctx.batch_sizes
        dim = initial_memory.size(1)
        memories = gates.new_empty(gates.size(0), dim)  # (n_tokens, dim)
        previous_memory, start = initial_memory, 0
        for size in batch_sizes:
            step = slice(start, start + size)
            previous_memory = _next_memory(
                gates[step], previous_memory[:size], ctx.cell_clip, out=memories[step]
            )
            start += size
        # Gradient of what went into the gates, in place of these if they are not needed again:
        # (n_tokens, 4 * dim)
        grad_gates = gates if may_overwrite_saved() else torch.empty_like(gates)
        # Gradient of the outputs before their clip: (n_tokens, projection_dim)
        grad_projected = torch.empty_like(outputs)
        # Output of the step before each step: (n_tokens, projection_dim)
        previous_outputs = torch.empty_like(outputs) if needs_state else None
        grad_bias = gates.new_zeros(4 * dim)
        grad_state = torch.zeros_like(initial_output)
        grad_memory = torch.zeros_like(initial_memory)
        workspace = torch.empty_like(initial_memory)
        to_state = PreparedMatrix(weight_state)
        unproject = None if weight_projection is None else PreparedMatrix(weight_projection)
        for t in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[t]
            start -= size
            step, before = slice(start, start + size), slice(start - batch_sizes[t - 1], start)
            memory = memories[step]  # (size, dim)
            previous_memory = (memories[before] if t else initial_memory)[:size]
            if previous_outputs is not None:
                previous_outputs[step] = (outputs[before] if t else initial_output)[:size]
            grad_hidden = grad_outputs[step] + grad_state[:size]  # (size, projection_dim)
            if unproject is not None:
                if ctx.proj_clip is not None:
                    clamp_backward_(grad_hidden, outputs[step], ctx.proj_clip)
                grad_projected[step] = grad_hidden
                grad_hidden = unproject.product(grad_hidden)  # (size, dim)
            in_gate, forget_gate, candidate, out_gate = gates[step].chunk(4, 1)
            # From here on, a gate may be overwritten by its gradient once it is not needed.
            grad_in, grad_forget, grad_candidate, grad_out = grad_gates[step].chunk(4, 1)
            tanh_memory = tanh(memory, out=workspace[:size])  # (size, dim)
            grad_of_out_gate = grad_hidden * tanh_memory  # (size, dim)
            grad_cell = tanh_backward(grad_hidden.mul_(out_gate), tanh_memory)  # (size, dim)
            grad_cell.add_(grad_memory[:size])
            if ctx.cell_clip is not None:
                clamp_backward_(grad_cell, memory, ctx.cell_clip)
            if needs_projection:
                # What was projected, in place of the memory, which is not needed again.
                torch.mul(tanh_memory, out_gate, out=memory)
            sigmoid_backward(grad_of_out_gate, out_gate, grad_out)
            torch.mul(grad_cell, forget_gate, out=grad_memory[:size])
            sigmoid_backward(grad_cell * previous_memory, forget_gate, grad_forget)
            grad_of_in_gate = grad_cell * candidate  # (size, dim)
            tanh_backward(grad_cell.mul_(in_gate), candidate, grad_candidate)
            sigmoid_backward(grad_of_in_gate, in_gate, grad_in)
            grad_bias.add_(grad_gates[step].sum(0))
            if t:
                grad_state[:size] = to_state.product(grad_gates[step])
        grads: List[Optional[torch.Tensor]] = [None] * 5
        if needs_projection:
            # (projection_dim, dim)
            grads[4] = weight_gradient(grad_projected, memories)
        del memories
        if needs_inputs:
            grads[0] = matrix_product(grad_gates, weight_input)  # (n_tokens, input_dim)
        if needs_input:
            grads[1] = weight_gradient(grad_gates, inputs)  # (4 * dim, input_dim)
        if previous_outputs is not None:
            grads[2] = weight_gradient(grad_gates, previous_outputs)  # (4 * dim, projection_dim)
        grads[3] = grad_bias
        return (*grads, *[None] * 4)


def _next_memory(
    gates: torch.Tensor, memory: torch.Tensor, cell_clip: Optional[float], out: torch.Tensor
) -> torch.Tensor:
    """
    Write the memory after a step to `out`, which may be `memory`: shape `(size, dim)`, from the
    activated gates `(size, 4 * dim)` and the memory before the step.
    """
    in_gate, forget_gate, candidate, _ = gates.chunk(4, 1)  # (size, dim) each
    torch.mul(forget_gate, memory, out=out).addcmul_(in_gate, candidate)
    return out if cell_clip is None else out.clamp_(-cell_clip, cell_clip)


class ProjectedLstm(CachingModule):
    """
    One layer of an LSTM in one direction with clipped cell and projected output: bilm-tf's
    `tf.nn.rnn_cell.LSTMCell(num_proj, cell_clip, proj_clip)`, with the parameter names, shapes and
    gate order (i, f, g, o) of AllenNLP's `LstmCellWithProjection`.

    ```
    i, f, o = sigmoid(...)   g = tanh(...)      of W x + U output' + b (+ forget_bias for f)
    memory  = clip(f * memory' + i * g)
    output  = clip(P (o * tanh(memory)))
    ```

    # Parameters

    input_dim, dim, projection_dim : `int`
        Sizes of an input, of the cell and of an output.
    cell_clip, proj_clip : `float`, optional (default = `None`)
        Bounds of memory and output.
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
        # Of the products, where no gradient is needed: one of `PRECISIONS`.
        self.precision = "float32"
        self._prepared: CachedValue[_InferenceWeights] = CachedValue()
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

    def zero_state(self, n_sequences: int, like: torch.Tensor) -> LstmState:
        """
        Return zeros of shapes `(n_sequences, projection_dim)` and `(n_sequences, dim)`, with the
        type and device of `like`.
        """
        return (
            like.new_zeros(n_sequences, self.projection_dim),
            like.new_zeros(n_sequences, self.dim),
        )

    def forward(
        self,
        inputs: torch.Tensor,
        packing: PackedBatch,
        state: LstmState,
        recurrent_dropout: float = 0.0,
    ) -> Tuple[torch.Tensor, LstmState]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(n_tokens, input_dim)`, in packed order; at least one token.
        state : `Tuple[torch.Tensor, torch.Tensor]`
            Output and memory before the first token, shapes `(n_sequences, projection_dim)` and
            `(n_sequences, dim)`, in the order of `packing.order`. It gets no gradient.
        recurrent_dropout : `float`, optional (default = `0.0`)
            In training, the share of weights between an output and the next gates to set to zero
            (DropConnect, Merity et al. 2018), where a gradient is needed.

        # Returns

        Outputs `(n_tokens, projection_dim)`, and the state after each sequence's last token.
        """
        if needs_grad(inputs, *self.weights):
            weight_state = self.state_linearity.weight
            if recurrent_dropout and self.training:
                weight_state = torch.nn.functional.dropout(weight_state, recurrent_dropout)
            projection = self.state_projection
            recurrence: Any = _Recurrence
            if product_type(weight_state, self.precision) == torch.bfloat16:
                recurrence = Bfloat16Recurrence
            outputs, memory = recurrence.apply(
                inputs,
                self.input_linearity.weight,
                weight_state,
                self._bias(),
                None if projection is None else projection.weight,
                state,
                packing.batch_sizes,
                self.cell_clip,
                self.proj_clip,
            )
        else:
            ((outputs, memory),) = run_in_step([self], [inputs], packing.batch_sizes, [state])
        return outputs, (outputs.detach()[packing.last], memory)

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

    def inference_weights(self) -> _InferenceWeights:
        """
        Return the weights for `run_in_step`, prepared once for as long as they don't change.
        """
        if self.state_linearity.weight.device.type != "cpu":
            return self._prepare()
        return self._prepared.get(self.weights, self._prepare, self.precision)

    def _prepare(self) -> _InferenceWeights:
        bias = self._bias()
        scales = torch.ones_like(bias)  # (4 * dim,)
        scales[2 * self.dim : 3 * self.dim] = 2.0
        state = PreparedMatrix(self.state_linearity.weight.t() * scales, self.precision)
        projection = self.state_projection
        return _InferenceWeights(
            PreparedMatrix(self.input_linearity.weight.t() * scales, self.precision),
            (bias * scales).to(state.dtype),
            StepWeights(
                state,
                None
                if projection is None
                else PreparedMatrix(projection.weight.t(), self.precision),
            ),
        )
