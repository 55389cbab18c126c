"""
An LSTM layer with clipped cell and projection, as bilm-tf has it: with a gradient, without one for
several layers at once, and by calls of its submodules where these have been changed.
"""

from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type

import torch

from allennlp_elmo_plugin.bilm.bfloat16_recurrence import Bfloat16Recurrence
from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_
from allennlp_elmo_plugin.bilm.kernels.distinct_rows import distinct_rows
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
    padded_rows,
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import (
    is_plain,
    may_overwrite_saved,
    needs_grad,
    without_autocast,
)
from allennlp_elmo_plugin.bilm.kernels.prepared import Prepared
from allennlp_elmo_plugin.bilm.packing import PackedBatch

# The inputs' part of the gates is computed for as many steps ahead as fit into this size. Memory of
# this size is used again rather than returned to the system.
_CHUNK_BYTES = 8 * 2**20
# Where inputs are repeated, for as many as would fit into this size. In chunks of fewer rows, or
# with a larger share of distinct ones, it is not worth the search.
_REPEATED_BYTES = 256 * 2**20
_REPEATED_ROWS = 256
_LARGEST_SHARE = 0.75

LstmState = Tuple[torch.Tensor, torch.Tensor]


def _input_gates(
    inputs: torch.Tensor,
    product: Callable[[torch.Tensor], torch.Tensor],
    dim: int,
    batch_sizes: List[int],
) -> Iterator[torch.Tensor]:
    """
    Yield the inputs' part of the gates step by step, shape `(size, 4 * dim)`: `product` of the
    inputs `(n_tokens, input_dim)`, computed for some steps ahead.
    """
    chunk_size = _CHUNK_BYTES // (4 * dim * inputs.element_size())
    for rows, sizes in _chunks(inputs, batch_sizes, chunk_size):
        yield from product(padded_rows(rows))[: rows.size(0)].split(sizes)


def _repeated_input_gates(
    inputs: torch.Tensor,
    product: Callable[[torch.Tensor], torch.Tensor],
    dim: int,
    batch_sizes: List[int],
) -> Iterator[torch.Tensor]:
    """
    Yield what `_input_gates` yields, with one product for equal inputs, such as those of a word.
    """
    chunk_size = _REPEATED_BYTES // (4 * dim * inputs.element_size())
    for rows, sizes in _chunks(inputs, batch_sizes, chunk_size):
        if rows.size(0) >= _REPEATED_ROWS:
            distinct, index = distinct_rows(rows)  # (n_distinct, input_dim), (n_rows,)
            if distinct.size(0) <= _LARGEST_SHARE * rows.size(0):
                gates = product(padded_rows(distinct))  # (at least n_distinct, 4 * dim)
                for places in index.split(sizes):
                    yield gates.index_select(0, places)
                continue
        yield from _input_gates(rows, product, dim, sizes)


def _chunks(
    inputs: torch.Tensor, batch_sizes: List[int], chunk_size: int
) -> Iterator[Tuple[torch.Tensor, List[int]]]:
    """
    Yield the rows of as many steps as have at most `chunk_size` of them, of one step at least, and
    the sizes of these steps.
    """
    start = 0
    sizes: List[int] = []
    for t, size in enumerate(batch_sizes):
        sizes.append(size)
        if t + 1 == len(batch_sizes) or sum(sizes) + batch_sizes[t + 1] > chunk_size:
            end = start + sum(sizes)
            yield inputs[start:end], sizes
            start, sizes = end, []


class _InferenceWeights(NamedTuple):
    """
    The weights of a layer as `run_in_step` uses them. Those of the candidate are doubled; see
    `tanh`.
    """

    input: PreparedMatrix
    state: PreparedMatrix
    bias: torch.Tensor
    projection: Optional[PreparedMatrix]

    def input_gates(self, rows: torch.Tensor) -> torch.Tensor:
        return self.input.product(rows, self.bias)


def final_state(outputs: torch.Tensor, memory: torch.Tensor, packing: PackedBatch) -> LstmState:
    """
    Return the state at the end from all outputs, shape `(n_tokens, projection_dim)`, and the memory
    at the end, `(n_sequences, dim)`.
    """
    return outputs.detach()[packing.last], memory


def _empty_apart(
    like: torch.Tensor, dtype: torch.dtype, n_layers: int, n_rows: int, dim: int
) -> torch.Tensor:
    """
    Return a tensor without values, shape `(n_layers, n_rows, dim)`, on the device of `like`. To the
    bit, what is computed in a layer's part doesn't depend on the other parts: torch rounds a
    sigmoid at the end of a piece of memory in another way than inside it, and MKL's products round
    by where their rows begin.
    """
    n_values = n_rows * dim
    size = (n_values // 64 + 1) * 64  # of a part: aligned, with a gap behind it
    parts = like.new_empty(n_layers, size, dtype=dtype)
    return parts[:, :n_values].view(n_layers, n_rows, dim)


def run_in_step(
    lstms: Sequence["ProjectedLstm"],
    inputs: Sequence[torch.Tensor],
    batch_sizes: List[int],
    states: Sequence[LstmState],
    are_repeated: bool = False,
) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """
    Run layers of one shape, such as those of two directions, step by step together, without a
    gradient. Apart from the matrix products, this needs as many operators as one layer. With the
    precision bfloat16, which is that of the products, memories are float32.

    For each layer the inputs are packed, shape `(n_tokens, input_dim)`, and the states are output
    and memory before the first token, shapes `(n_sequences, projection_dim)` and `(n_sequences,
    dim)`. `are_repeated` says that many inputs are equal to others.

    # Returns

    For each layer its outputs `(n_tokens, projection_dim)` and final memory `(n_sequences, dim)`.
    """
    n_layers, dim = len(lstms), lstms[0].dim
    cell_clip, proj_clip = lstms[0].cell_clip, lstms[0].proj_clip
    weights = [lstm.inference_weights() for lstm in lstms]
    dtype = weights[0].state.dtype
    memories = torch.stack([memory for _, memory in states])  # (n_layers, n_sequences, dim)
    all_gates = memories.new_empty(n_layers, memories.size(1), 4 * dim)
    workspace = _empty_apart(memories, memories.dtype, n_layers, memories.size(1), dim)
    n_tokens, projection_dim = inputs[0].size(0), states[0][0].size(1)
    outputs = _empty_apart(memories, dtype, n_layers, n_tokens, projection_dim)
    previous = [output.to(dtype) for output, _ in states]  # (n_sequences, projection_dim) each
    # From a GPU, the number of distinct inputs would have to be copied.
    finds_repeated = are_repeated and memories.device.type == "cpu"
    gates_of = _repeated_input_gates if finds_repeated else _input_gates
    input_gates = [
        gates_of(rows.to(dtype), layer.input_gates, dim, batch_sizes)
        for rows, layer in zip(inputs, weights)
    ]
    start, previous_size = 0, 0
    for size, *from_inputs in zip(batch_sizes, *input_gates):
        if size != previous_size:
            previous_size = size
            previous = [output[:size] for output in previous]  # (size, projection_dim) each
            gates = all_gates[:, :size]  # (n_layers, size, 4 * dim)
            gates_of_layers = list(gates)
            # (n_layers, size, dim) each
            in_gate, forget_gate, candidate, out_gate = gates.chunk(4, 2)
            memory, scratch = memories[:, :size], workspace[:, :size]  # (n_layers, size, dim) each
        for i, layer in enumerate(weights):
            raw = layer.state.product(previous[i], add=from_inputs[i])  # (size, 4 * dim)
            torch.sigmoid(raw.to(gates.dtype), out=gates_of_layers[i])
        memory.mul_(forget_gate).addcmul_(in_gate, candidate, value=2).sub_(in_gate)
        if cell_clip is not None:
            memory.clamp_(-cell_clip, cell_clip)
        hidden = tanh(memory, out=scratch).mul_(out_gate).to(dtype)  # (n_layers, size, dim)
        output = outputs[:, start : start + size]  # (n_layers, size, projection_dim)
        previous = list(output)
        for layer, row, projected in zip(weights, hidden, previous):
            projection = layer.projection
            projected.copy_(row if projection is None else projection.product(row))
        if proj_clip is not None and weights[0].projection is not None:
            output.clamp_(-proj_clip, proj_clip)
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
        input_gates = _input_gates(
            inputs, lambda rows: matrix_product(rows, weight_input.t(), bias), dim, batch_sizes
        )
        for size, from_inputs in zip(batch_sizes, input_gates):
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


class ProjectedLstm(torch.nn.Module):
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
        self.forget_bias = forget_bias
        self.input_linearity = torch.nn.Linear(input_dim, 4 * dim, bias=False, device=device)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * dim, device=device)
        self.state_projection = None
        if dim != projection_dim if project is None else project:
            self.state_projection = torch.nn.Linear(dim, projection_dim, bias=False, device=device)
        # Of the products, where no gradient is needed: one of `PRECISIONS`.
        self.precision = "float32"
        self._prepared: Prepared[_InferenceWeights] = Prepared()
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
            (DropConnect, Merity et al. 2018); where a gradient is needed and no submodule was
            changed.

        # Returns

        Outputs `(n_tokens, projection_dim)`, and the state after each sequence's last token.
        """
        if not self.has_plain_parts:
            outputs, memories = self._run_parts(inputs, packing.batch_sizes, state)
            memory = memories[packing.last]  # (n_sequences, dim)
        elif needs_grad(inputs, *self.weights):
            weight_state = self.dropped_state_weight(recurrent_dropout)
            function, arguments = self.recurrence(inputs, packing, state, weight_state)
            outputs, memory = function.apply(*arguments)
        else:
            ((outputs, memory),) = run_in_step([self], [inputs], packing.batch_sizes, [state])
        return outputs, final_state(outputs, memory, packing)

    def dropped_state_weight(self, recurrent_dropout: float) -> torch.Tensor:
        """
        Return the weight of the state, shape `(4 * dim, projection_dim)`, after the dropout of
        training.
        """
        weight = self.state_linearity.weight
        if not (recurrent_dropout and self.training):
            return weight
        return torch.nn.functional.dropout(weight, recurrent_dropout)

    def recurrence(
        self,
        inputs: torch.Tensor,
        packing: PackedBatch,
        state: LstmState,
        weight_state: torch.Tensor,
    ) -> Tuple[Type[torch.autograd.Function], Sequence[Any]]:
        """
        Return the function with a gradient that returns all outputs and the final memory, and its
        arguments, which are those of `forward` and the weight of the state.
        """
        projection = self.state_projection
        return Bfloat16Recurrence if self.precision == "bfloat16" else _Recurrence, [
            inputs,
            self.input_linearity.weight,
            weight_state,
            self._bias(),
            None if projection is None else projection.weight,
            state,
            packing.batch_sizes,
            self.cell_clip,
            self.proj_clip,
        ]

    @property
    def has_plain_parts(self) -> bool:
        """
        Whether the submodules are plain linear layers without hooks, so that they may be bypassed.
        """
        parts = (self.input_linearity, self.state_linearity, self.state_projection)
        return all(part is None or is_plain(part, torch.nn.Linear) for part in parts)

    def _run_parts(
        self, inputs: torch.Tensor, batch_sizes: List[int], state: LstmState
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        Run the recurrence by calls of the submodules, whatever they are. Return the outputs of all
        tokens, and their memories without a gradient.
        """
        output, memory = state
        outputs, memories, start = [], [], 0
        for size in batch_sizes:
            rows = inputs[start : start + size]  # (size, input_dim)
            gates = self.input_linearity(rows) + self.state_linearity(output[:size])
            in_gate, forget_gate, candidate, out_gate = gates.chunk(4, 1)  # (size, dim) each
            kept = (forget_gate + self.forget_bias).sigmoid() * memory[:size]
            memory = in_gate.sigmoid() * candidate.tanh() + kept  # (size, dim)
            if self.cell_clip is not None:
                memory = memory.clamp(-self.cell_clip, self.cell_clip)
            output = out_gate.sigmoid() * memory.tanh()  # (size, dim)
            if self.state_projection is not None:
                output = self.state_projection(output)  # (size, projection_dim)
                if self.proj_clip is not None:
                    output = output.clamp(-self.proj_clip, self.proj_clip)
            outputs.append(output)
            memories.append(memory.detach())
            start += size
        return torch.cat(outputs), torch.cat(memories)

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
        The parameters, also in a replica of `DataParallel`, where torch finds none.
        """
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
            state,
            (bias * scales).to(state.dtype),
            None if projection is None else PreparedMatrix(projection.weight.t(), self.precision),
        )
