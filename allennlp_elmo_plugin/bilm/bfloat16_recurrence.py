"""
The recurrence of an LSTM layer with a gradient, in bfloat16: matrix products, and what is kept for
the backward pass, have this type. All else is float32.
"""

from typing import Any, List, Optional, Tuple

import torch

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
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import may_overwrite_saved, without_autocast

_HALF = torch.bfloat16


def _kept(clip: Optional[float]) -> Optional[float]:
    """
    Return the least that is kept of a value at its clip, which rounding may make smaller.
    """
    if clip is None:
        return None
    # Without a wait for a GPU that is torch's default device
    return min(clip, torch.tensor(clip, dtype=_HALF, device="cpu").item())


class Bfloat16Recurrence(torch.autograd.Function):
    """
    The recurrence of `lstm.py` in bfloat16. A step computes in float32 in the same few buffers,
    which stay in the processor's cache, and reads or writes once what is kept for the backward
    pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight_input: torch.Tensor,
        weight_state: torch.Tensor,
        bias: torch.Tensor,
        weight_projection: Optional[torch.Tensor],
        state: Tuple[torch.Tensor, torch.Tensor],
        batch_sizes: List[int],
        cell_clip: Optional[float],
        proj_clip: Optional[float],
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        initial_output, initial_memory = state
        (n_tokens, input_dim), dim = inputs.shape, initial_memory.size(1)
        # Each step's input and the output before it side by side, so that one product computes the
        # gates: (n_tokens, input_dim + projection_dim)
        rows = inputs.new_empty(n_tokens, input_dim + initial_output.size(1), dtype=_HALF)
        rows[:, :input_dim] = inputs
        rows[: batch_sizes[0], input_dim:] = initial_output[: batch_sizes[0]]
        weight = torch.cat([weight_input, weight_state], 1)  # (4 * dim, input_dim + projection_dim)
        # One sigmoid computes all gates; see `tanh`.
        scales = torch.ones_like(bias)  # (4 * dim,)
        scales[2 * dim : 3 * dim] = 2.0
        to_gates = PreparedMatrix((weight * scales.unsqueeze(1)).t(), "bfloat16")
        bias = (bias * scales).to(_HALF)
        project = None
        if weight_projection is not None:
            weight_projection = weight_projection.to(_HALF)
            project = PreparedMatrix(weight_projection.t())
        memory = initial_memory.to(torch.float32, copy=True)  # (n_sequences, dim)
        all_gates = rows.new_empty(n_tokens, 4 * dim)
        memories = rows.new_empty(n_tokens, dim)
        outputs = initial_output.new_empty(n_tokens, initial_output.size(1))
        buffer = memory.new_empty(memory.size(0), 4 * dim)
        workspace = torch.empty_like(memory)
        start = 0
        for t, size in enumerate(batch_sizes):
            step, start = slice(start, start + size), start + size
            gates = buffer[:size].copy_(to_gates.product(rows[step], bias)).sigmoid_()
            in_gate, forget_gate, candidate, out_gate = gates.chunk(4, 1)  # (size, dim) each
            candidate.mul_(2).sub_(1)
            all_gates[step] = gates
            memory[:size].mul_(forget_gate).addcmul_(in_gate, candidate)
            if cell_clip is not None:
                memory.clamp_(-cell_clip, cell_clip)
            memories[step] = memory[:size]
            hidden = tanh(memory[:size], out=workspace[:size]).mul_(out_gate)
            output = hidden.to(_HALF)  # (size, dim)
            if project is not None:
                output = project.product(output)  # (size, projection_dim)
                if proj_clip is not None:
                    output.clamp_(-proj_clip, proj_clip)
            outputs[step] = output
            if t + 1 < len(batch_sizes):
                size = batch_sizes[t + 1]
                rows[start : start + size, input_dim:] = output[:size]
        ctx.save_for_backward(
            rows, weight.to(_HALF), weight_projection, initial_memory, outputs, memories, all_gates
        )
        ctx.batch_sizes = batch_sizes
        ctx.cell_clip, ctx.proj_clip = _kept(cell_clip), _kept(proj_clip)
        final_memory = memory.to(initial_memory.dtype)
        ctx.mark_non_differentiable(final_memory)
        return outputs, final_memory

    @staticmethod
    @once_differentiable
    @without_autocast()
    def backward(ctx: Any, grad_outputs: torch.Tensor, _: Any) -> Any:
        # Read once: gradient checkpointing frees them after that.
        saved = ctx.saved_tensors
        rows, weight, weight_projection, initial_memory, outputs, memories, all_gates = saved
        needs_inputs, needs_input, needs_state, needs_bias, needs_projection = ctx.needs_input_grad[
            :5
        ]
        batch_sizes: List[int] = ctx.batch_sizes
        dim, projection_dim = initial_memory.size(1), outputs.size(1)
        input_dim = rows.size(1) - projection_dim
        # Gradient of what went into the gates, (n_tokens, 4 * dim), and what was projected,
        # (n_tokens, dim), in place of gates and memories if these are not needed again.
        grad_gates, hiddens = all_gates, memories
        if not may_overwrite_saved():
            grad_gates, hiddens = torch.empty_like(all_gates), torch.empty_like(memories)
        # Gradient of the outputs before their clip: (n_tokens, projection_dim)
        grad_projected = torch.empty_like(outputs, dtype=_HALF)
        to_state = PreparedMatrix(weight[:, input_dim:].contiguous())
        unproject = None if weight_projection is None else PreparedMatrix(weight_projection)
        buffer = initial_memory.new_empty(initial_memory.size(0), 4 * dim, dtype=torch.float32)
        # The memory after the step and before it, and others: (n_sequences, dim) each
        memory, before, tanh_memory, grad_hidden, workspace = (
            buffer.new_empty(buffer.size(0), dim) for _ in range(5)
        )
        grad_memory = torch.zeros_like(memory)
        grad_state = buffer.new_zeros(buffer.size(0), projection_dim)
        grad_bias = buffer.new_zeros(4 * dim)
        start = rows.size(0)
        memory[: batch_sizes[-1]] = memories[start - batch_sizes[-1] :]
        for t in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[t]
            step, start = slice(start - size, start), start - size
            if t:
                size_before = batch_sizes[t - 1]
                before[:size_before] = memories[start - size_before : start]
            else:
                before.copy_(initial_memory)
            grad_output = grad_outputs[step] + grad_state[:size]  # (size, projection_dim)
            if unproject is None:
                grad_hidden[:size] = grad_output
            else:
                if ctx.proj_clip is not None:
                    clamp_backward_(grad_output, outputs[step], ctx.proj_clip)
                grad_projected[step] = grad_output
                grad_hidden[:size] = unproject.product(grad_projected[step])
            gates = buffer[:size].copy_(all_gates[step])
            in_gate, forget_gate, candidate, out_gate = gates.chunk(4, 1)  # (size, dim) each
            activated = tanh(memory[:size], out=tanh_memory[:size])  # (size, dim)
            product = workspace[:size]  # (size, dim), of different things one after the other
            hiddens[step] = torch.mul(activated, out_gate, out=product)
            # From here on, a gate is overwritten by its gradient once it is not needed.
            torch.mul(grad_hidden[:size], activated, out=product)
            grad_cell = tanh_backward(grad_hidden[:size].mul_(out_gate), activated, activated)
            sigmoid_backward(product, out_gate, out_gate)
            grad_cell.add_(grad_memory[:size])
            if ctx.cell_clip is not None:
                clamp_backward_(grad_cell, memory[:size], ctx.cell_clip)
            torch.mul(grad_cell, forget_gate, out=grad_memory[:size])
            torch.mul(grad_cell, before[:size], out=product)
            sigmoid_backward(product, forget_gate, forget_gate)
            torch.mul(grad_cell, candidate, out=product)
            tanh_backward(grad_cell.mul_(in_gate), candidate, candidate)
            sigmoid_backward(product, in_gate, in_gate)
            grad_bias.add_(gates.sum(0))
            grad_gates[step] = gates
            if t:
                grad_state[:size] = to_state.product(grad_gates[step])
            memory, before = before, memory
        grads: List[Optional[torch.Tensor]] = [None] * 5
        if needs_inputs:
            # oneDNN is a hundred times slower with a matrix that is part of another.
            weight_input = weight[:, :input_dim].contiguous()  # (4 * dim, input_dim)
            grads[0] = matrix_product(grad_gates, weight_input)  # (n_tokens, input_dim)
        if needs_input or needs_state:
            # (4 * dim, input_dim + projection_dim)
            grad_weight = weight_gradient(grad_gates, rows)
            grads[1:3] = grad_weight.split([input_dim, projection_dim], 1)
        if needs_bias:
            grads[3] = grad_bias
        if needs_projection:
            grads[4] = weight_gradient(grad_projected, hiddens)  # (projection_dim, dim)
        dtype = outputs.dtype
        return (
            *(None if grad is None else grad.to(dtype).contiguous() for grad in grads),
            *[None] * 4,
        )
