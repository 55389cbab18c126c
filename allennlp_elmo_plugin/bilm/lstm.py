from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable

from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_
from allennlp_elmo_plugin.bilm.packing import PackedBatch

# Gates that are computed ahead, for as many steps as fit, where no gradient is needed.
_WORKSPACE_BYTES = 32 * 2**20

LstmState = Tuple[torch.Tensor, torch.Tensor]


class _Cell(NamedTuple):
    """
    What a step of the recurrence needs besides its inputs. Weights are `(in, out)`.
    """

    weight_state: torch.Tensor
    weight_projection: Optional[torch.Tensor]
    cell_clip: Optional[float]
    proj_clip: Optional[float]

    def step(
        self,
        gates: torch.Tensor,
        previous_output: torch.Tensor,
        previous_memory: torch.Tensor,
        memory: torch.Tensor,
        hidden: torch.Tensor,
        output: torch.Tensor,
    ) -> None:
        """
        One time step for the n sequences that are still going on, in place.

        # Parameters

        gates : `torch.Tensor`
            Shape `(n, 4 * dim)`: the input's part of the gates i, f, g, o; activated in place.
        previous_output, previous_memory : `torch.Tensor`
            Shapes `(n, projection_dim)` and `(n, dim)`.
        memory, hidden, output : `torch.Tensor`
            Written to; shapes `(n, dim)`, `(n, dim)` and `(n, projection_dim)`. `memory` may be
            `previous_memory`, and `output` is `hidden` where there is no projection.
        """
        dim = memory.size(1)
        gates.addmm_(previous_output, self.weight_state)
        gates[:, : 2 * dim].sigmoid_()
        gates[:, 2 * dim : 3 * dim].tanh_()
        gates[:, 3 * dim :].sigmoid_()
        in_gate, forget_gate, candidate, out_gate = gates.split(dim, 1)
        torch.mul(forget_gate, previous_memory, out=memory)
        memory.addcmul_(in_gate, candidate)
        if self.cell_clip is not None:
            memory.clamp_(-self.cell_clip, self.cell_clip)
        torch.tanh(memory, out=hidden).mul_(out_gate)
        if self.weight_projection is not None:
            torch.mm(hidden, self.weight_projection, out=output)
            if self.proj_clip is not None:
                output.clamp_(-self.proj_clip, self.proj_clip)


def _run(
    cell: _Cell,
    inputs: torch.Tensor,
    weight_input: torch.Tensor,
    bias: torch.Tensor,
    state: LstmState,
    batch_sizes: List[int],
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    The recurrence without a gradient: gates are computed some steps ahead in a reused workspace.

    # Returns

    `Tuple[torch.Tensor, torch.Tensor]`
        Outputs `(n_tokens, projection_dim)` and the final memory `(n_sequences, dim)`.
    """
    previous_output, memory = state[0], state[1].clone()
    dim = memory.size(1)
    outputs = inputs.new_empty(inputs.size(0), state[0].size(1))
    hidden_workspace = None
    if cell.weight_projection is not None:
        hidden_workspace = torch.empty_like(memory)
    rows = max(_WORKSPACE_BYTES // (4 * dim * inputs.element_size()), batch_sizes[0])
    workspace = inputs.new_empty(min(rows, inputs.size(0)), 4 * dim)
    start, ahead = 0, 0
    for t, size in enumerate(batch_sizes):
        if start == ahead:
            first = start
            for later in batch_sizes[t:]:
                if ahead + later - first > rows:
                    break
                ahead += later
            # (ahead - first, 4 * dim)
            torch.addmm(bias, inputs[first:ahead], weight_input, out=workspace[: ahead - first])
        output = outputs[start : start + size]  # (size, projection_dim)
        cell.step(
            workspace[start - first : start - first + size],
            previous_output[:size],
            memory[:size],
            memory[:size],
            output if hidden_workspace is None else hidden_workspace[:size],
            output,
        )
        previous_output, start = output, start + size
    return outputs, memory


class _Recurrence(torch.autograd.Function):
    """
    The recurrence with its gradient: the activated gates of all steps are kept, and each weight's
    gradient is one matrix product after the loop. No gradient reaches the initial state, where
    truncated back-propagation stops.
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
        cell = _Cell(weight_state, weight_projection, cell_clip, proj_clip)
        previous_output, previous_memory = state
        n_tokens, dim = inputs.size(0), previous_memory.size(1)
        gates = torch.addmm(bias, inputs, weight_input)  # (n_tokens, 4 * dim)
        memories = inputs.new_empty(n_tokens, dim)
        outputs = inputs.new_empty(n_tokens, previous_output.size(1))
        # What the projection reads: (n_tokens, dim)
        hidden = outputs if weight_projection is None else torch.empty_like(memories)
        start = 0
        for size in batch_sizes:
            step = slice(start, start + size)
            cell.step(
                gates[step],
                previous_output[:size],
                previous_memory[:size],
                memories[step],
                hidden[step],
                outputs[step],
            )
            previous_output, previous_memory = outputs[step], memories[step]
            start += size
        ctx.save_for_backward(
            inputs,
            weight_input,
            weight_state,
            weight_projection,
            *state,
            outputs,
            hidden,
            gates,
            memories,
        )
        ctx.batch_sizes, ctx.cell_clip, ctx.proj_clip = batch_sizes, cell_clip, proj_clip
        final_memories = memories.detach()
        ctx.mark_non_differentiable(final_memories)
        return outputs, final_memories

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: torch.Tensor, _: Any) -> Any:
        inputs, weight_input, weight_state, weight_projection = ctx.saved_tensors[:4]
        state, memory, outputs, hidden, gates, memories = ctx.saved_tensors[4:]
        batch_sizes: List[int] = ctx.batch_sizes
        dim = memory.size(1)
        # Gradient of what went into the gates: (n_tokens, 4 * dim)
        grad_gates = torch.empty_like(gates)
        # Gradient of the outputs before their clip: (n_tokens, projection_dim)
        grad_projected = torch.empty_like(outputs)
        # What each step got from the one before: (n_tokens, projection_dim)
        previous_outputs = torch.empty_like(outputs)
        grad_state = torch.zeros_like(state)
        grad_memory = torch.zeros_like(memory)
        start = inputs.size(0)
        for t in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[t]
            start -= size
            step, before = slice(start, start + size), slice(start - batch_sizes[t - 1], start)
            previous_memory = (memories[before] if t else memory)[:size]
            previous_outputs[step] = (outputs[before] if t else state)[:size]
            grad_hidden = torch.add(grad_outputs[step], grad_state[:size], out=grad_projected[step])
            if weight_projection is not None:
                if ctx.proj_clip is not None:
                    grad_hidden.mul_(outputs[step].abs() < ctx.proj_clip)
                grad_hidden = grad_hidden @ weight_projection.t()  # (size, dim)
            in_gate, forget_gate, candidate, out_gate = gates[step].split(dim, 1)
            grad_in, grad_forget, grad_candidate, grad_out = grad_gates[step].split(dim, 1)
            tanh_memory = torch.tanh(memories[step])  # (size, dim)
            _sigmoid_backward(grad_hidden * tanh_memory, out_gate, grad_out)
            # (size, dim)
            grad_cell = _tanh_backward(grad_hidden * out_gate, tanh_memory, tanh_memory)
            grad_cell.add_(grad_memory[:size])
            if ctx.cell_clip is not None:
                grad_cell.mul_(memories[step].abs() < ctx.cell_clip)
            torch.mul(grad_cell, forget_gate, out=grad_memory[:size])
            _sigmoid_backward(grad_cell * candidate, in_gate, grad_in)
            _sigmoid_backward(grad_cell * previous_memory, forget_gate, grad_forget)
            _tanh_backward(grad_cell.mul_(in_gate), candidate, grad_candidate)
            torch.mm(grad_gates[step], weight_state.t(), out=grad_state[:size])
        grad_weight_projection = None
        if weight_projection is not None:
            grad_weight_projection = hidden.t() @ grad_projected  # (dim, projection_dim)
        return (
            grad_gates @ weight_input.t() if ctx.needs_input_grad[0] else None,
            inputs.t() @ grad_gates,
            previous_outputs.t() @ grad_gates,
            grad_gates.sum(0),
            grad_weight_projection,
            None,
            None,
            None,
            None,
        )


def _tanh_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.tanh_backward(grad, output, grad_input=out)


def _sigmoid_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.sigmoid_backward(grad, output, grad_input=out)


class ProjectedLstm(torch.nn.Module):
    """
    One layer of an LSTM in one direction, its cell and its projected output clipped: bilm-tf's
    `tf.nn.rnn_cell.LSTMCell(num_proj, cell_clip, proj_clip)`, and AllenNLP's
    `LstmCellWithProjection`, whose parameter names, shapes and gate order (i, f, g, o) it has.

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
        Added to the forget gate at every use, and so no part of the parameter, as bilm-tf has it.
        AllenNLP adds it to the parameter when it reads the weights: 0.0 for its state dicts.
    project : `bool`, optional (default = if `dim != projection_dim`)
        Whether there is a projection, and a clip of it.
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
    ) -> None:
        super().__init__()
        self.dim = dim
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        self.forget_bias = forget_bias
        self.input_linearity = torch.nn.Linear(input_dim, 4 * dim, bias=False)
        self.state_linearity = torch.nn.Linear(projection_dim, 4 * dim)
        self.state_projection = None
        if dim != projection_dim if project is None else project:
            self.state_projection = torch.nn.Linear(dim, projection_dim, bias=False)
        for linear in (self.input_linearity, self.state_linearity, self.state_projection):
            # The memory runs along the outputs, as a matrix product of few rows wants it. Copies,
            # state dicts and optimizers keep these strides.
            if linear is not None:
                memory = torch.empty(linear.in_features, linear.out_features)
                linear.weight = torch.nn.Parameter(memory.t())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """
        bilm-tf's start: Glorot uniform over the kernel that inputs and state share, biases 0.
        """
        in_dim = self.input_linearity.in_features + self.projection_dim
        glorot_uniform_(self.input_linearity.weight, in_dim, 4 * self.dim)
        glorot_uniform_(self.state_linearity.weight, in_dim, 4 * self.dim)
        torch.nn.init.zeros_(self.state_linearity.bias)
        if self.state_projection is not None:
            glorot_uniform_(self.state_projection.weight, self.dim, self.projection_dim)

    def zero_state(self, n_sequences: int, like: torch.Tensor) -> LstmState:
        """
        # Returns

        `Tuple[torch.Tensor, torch.Tensor]`
            Zeros of shapes `(n_sequences, projection_dim)` and `(n_sequences, dim)`, with the type
            and device of `like`.
        """
        return (
            like.new_zeros(n_sequences, self.projection_dim),
            like.new_zeros(n_sequences, self.dim),
        )

    def forward(
        self, inputs: torch.Tensor, packing: PackedBatch, state: LstmState
    ) -> Tuple[torch.Tensor, LstmState]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Shape `(n_tokens, input_dim)`, in packed order.
        packing : `PackedBatch`
            The batch's index; it has at least one token.
        state : `Tuple[torch.Tensor, torch.Tensor]`
            Output and memory before the first token, shapes `(n_sequences, projection_dim)` and
            `(n_sequences, dim)`, in the order of `packing.order`. No gradient goes there.

        # Returns

        `Tuple[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]`
            Outputs `(n_tokens, projection_dim)`, and the state after each sequence's last token.
        """
        weight_input = self.input_linearity.weight.t()  # (input_dim, 4 * dim)
        weight_state = self.state_linearity.weight.t()  # (projection_dim, 4 * dim)
        weight_projection = None
        if self.state_projection is not None:
            weight_projection = self.state_projection.weight.t()  # (dim, projection_dim)
        bias: torch.Tensor = self.state_linearity.bias  # (4 * dim,)
        if self.forget_bias:
            offset = torch.zeros_like(bias)
            offset[self.dim : 2 * self.dim] = self.forget_bias
            bias = bias + offset
        needs_grad = torch.is_grad_enabled() and (
            inputs.requires_grad or any(p.requires_grad for p in self.parameters())
        )
        if needs_grad:
            outputs, memories = _Recurrence.apply(
                inputs,
                weight_input,
                weight_state,
                bias,
                weight_projection,
                state,
                packing.batch_sizes,
                self.cell_clip,
                self.proj_clip,
            )
            memory = memories[packing.last]  # (n_sequences, dim)
        else:
            cell = _Cell(weight_state, weight_projection, self.cell_clip, self.proj_clip)
            outputs, memory = _run(cell, inputs, weight_input, bias, state, packing.batch_sizes)
        return outputs, (outputs.detach()[packing.last], memory)
