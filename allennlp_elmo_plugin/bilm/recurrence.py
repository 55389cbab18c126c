"""
The recurrence of an LSTM with a clipped cell and a projection: steps of layers that run together,
and their gradient.

Matrix products, and what is saved for the backward pass, have the type of the weights, float32 or
bfloat16. Cells, and what is computed with them, have the type of the initial cells, float32.
"""

from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

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
    padded_rows,
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.kernels.model_call import may_overwrite_saved, without_autocast

# The inputs' part of the gates is computed for as many steps ahead as fit into this size. Memory of
# this size is used again rather than returned to the system.
_CHUNK_BYTES = 8 * 2**20

LstmState = Tuple[torch.Tensor, torch.Tensor]
"""Outputs `(n_sequences, projection_dim)` and cells `(n_sequences, dim)`."""


class LayerWeights(NamedTuple):
    """
    The weights of a layer, from inputs and outputs to gates and from cells to outputs. The gates
    are those of input and forgetting, the candidate, and the gate of the output. `is_doubled` says
    that the weights of the candidate are twice the parameters; see `_step`.
    """

    input: PreparedMatrix
    bias: torch.Tensor
    state: PreparedMatrix
    projection: Optional[PreparedMatrix]
    cell_clip: Optional[float]
    proj_clip: Optional[float]
    is_doubled: bool = False


def run_steps(
    layers: Sequence[LayerWeights],
    inputs: Sequence[torch.Tensor],
    batch_sizes: List[int],
    states: Sequence[LstmState],
    saved: Optional[Tuple[torch.Tensor, torch.Tensor]] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """
    Run layers of one shape, such as those of two directions, step by step together. Apart from the
    matrix products, this needs as many operators as one layer.

    # Parameters

    inputs : `Sequence[torch.Tensor]`
        Those of each layer, packed: shape `(n_tokens, input_dim)`.
    states : `Sequence[LstmState]`
        Where each layer starts.
    saved : `Tuple[torch.Tensor, torch.Tensor]`, optional
        Where to write the gates and cells of each step, of one layer: shapes `(n_tokens, 4 * dim)`
        and `(n_tokens, dim)`.

    # Returns

    The outputs of each layer, shape `(n_layers, n_tokens, projection_dim)`, and the cells after
    each sequence's last token, shape `(n_layers, n_sequences, dim)`.
    """
    cell_clip, proj_clip = layers[0].cell_clip, layers[0].proj_clip
    dtype = layers[0].state.dtype
    all_cells = torch.stack([cells for _, cells in states])  # (n_layers, n_sequences, dim)
    n_layers, n_sequences, dim = all_cells.shape
    before: Any = [outputs.to(dtype) for outputs, _ in states]
    shape = n_layers, inputs[0].size(0), before[0].size(1)
    all_outputs = all_cells.new_empty(shape, dtype=dtype)
    all_gates = all_cells.new_empty(n_layers, n_sequences, 4 * dim)
    workspace = torch.empty_like(all_cells)
    is_rounded = dtype != all_cells.dtype
    # The boundaries alone, which settle the state, are not worth a layout of the weights.
    is_single = n_sequences == 1 and len(batch_sizes) > 2
    multiply = PreparedMatrix.product_of_one if is_single else PreparedMatrix.product
    from_inputs = [
        _input_gates(layer, rows.to(dtype), batch_sizes) for layer, rows in zip(layers, inputs)
    ]
    start = 0
    for size, *from_inputs_of_step in zip(batch_sizes, *from_inputs):
        step = slice(start, start + size)
        start += size
        gates, cells = all_gates[:, :size], all_cells[:, :size]
        if saved is not None and not is_rounded:
            gates = saved[0][step].unsqueeze(0)
        for layer, outputs, rows, out in zip(layers, before, from_inputs_of_step, gates):
            raw = multiply(layer.state, outputs[:size], add=rows)  # (size, 4 * dim)
            if is_rounded:
                raw = out.copy_(raw)
            if not layer.is_doubled:
                raw[:, 2 * dim : 3 * dim].mul_(2)
            torch.sigmoid(raw, out=out)
        hidden = _step(gates, cells, cell_clip, out=workspace[:, :size]).to(dtype)
        before = all_outputs[:, step]  # (n_layers, size, projection_dim)
        for layer, rows, out in zip(layers, hidden, before):
            out.copy_(rows if layer.projection is None else multiply(layer.projection, rows))
        if proj_clip is not None and layers[0].projection is not None:
            before.clamp_(-proj_clip, proj_clip)
        if saved is not None:
            gates[0, :, 2 * dim : 3 * dim].mul_(2).sub_(1)
            saved[1][step] = cells[0]
            if is_rounded:
                saved[0][step] = gates[0]
    return all_outputs, all_cells


def _input_gates(
    layer: LayerWeights, inputs: torch.Tensor, batch_sizes: List[int]
) -> Iterator[torch.Tensor]:
    """
    Yield the inputs' part of the gates step by step, shape `(size, 4 * dim)`.
    """
    chunk_size = _CHUNK_BYTES // (layer.bias.numel() * inputs.element_size())
    start = 0
    sizes: List[int] = []
    for t, size in enumerate(batch_sizes):
        sizes.append(size)
        if t + 1 == len(batch_sizes) or sum(sizes) + batch_sizes[t + 1] > chunk_size:
            end = start + sum(sizes)
            rows = padded_rows(inputs[start:end])
            yield from layer.input.product(rows, layer.bias)[: end - start].split(sizes)
            start, sizes = end, []


def _step(
    gates: torch.Tensor, cells: torch.Tensor, cell_clip: Optional[float], out: torch.Tensor
) -> torch.Tensor:
    """
    Compute a step of the cells in place, shape `(..., dim)`, from sigmoids `(..., 4 * dim)`, that
    of the candidate of its double: `tanh(x) = 2 * sigmoid(2 * x) - 1`. Return what is projected, in
    `out`.
    """
    in_gate, forget_gate, candidate, out_gate = gates.chunk(4, -1)
    cells.mul_(forget_gate).addcmul_(in_gate, candidate, value=2).sub_(in_gate)
    if cell_clip is not None:
        cells.clamp_(-cell_clip, cell_clip)
    return tanh(cells, out=out).mul_(out_gate)


class Recurrence(torch.autograd.Function):
    """
    `run_steps` of one layer, with its gradient. The gradient of each weight is one matrix product
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
        dtype: torch.dtype,
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        `dtype` is that of the matrix products and of what is saved.
        """
        n_tokens, dim = inputs.size(0), state[1].size(1)
        rows, weight_input, weight_state = (
            each.to(dtype) for each in (inputs, weight_input, weight_state)
        )
        projection = None
        if weight_projection is not None:
            weight_projection = weight_projection.to(dtype)
            projection = PreparedMatrix(weight_projection.t())
        layer = LayerWeights(
            PreparedMatrix(weight_input.t()),
            bias.to(dtype),
            PreparedMatrix(weight_state.t()),
            projection,
            cell_clip,
            proj_clip,
        )
        saved = rows.new_empty(n_tokens, 4 * dim), rows.new_empty(n_tokens, dim)
        (outputs,), (cells,) = run_steps([layer], [rows], batch_sizes, [state], saved)
        ctx.save_for_backward(
            rows, weight_input, weight_state, weight_projection, *state, outputs, *saved
        )
        ctx.batch_sizes = batch_sizes
        ctx.cell_clip, ctx.proj_clip = (_kept(clip, dtype) for clip in (cell_clip, proj_clip))
        ctx.mark_non_differentiable(cells)
        return outputs.to(inputs.dtype), cells

    @staticmethod
    @once_differentiable
    @without_autocast()
    def backward(ctx: Any, grad_outputs: torch.Tensor, _: Any) -> Any:
        # Read once: gradient checkpointing frees them after that.
        saved = ctx.saved_tensors
        rows, weight_input, weight_state, weight_projection, *saved = saved
        initial_output, initial_cells, outputs, gates, cells = saved
        needs_inputs, needs_input, needs_state, needs_bias, needs_projection = ctx.needs_input_grad[
            :5
        ]
        batch_sizes: List[int] = ctx.batch_sizes
        # Gradient of what went into the gates, (n_tokens, 4 * dim), and what was projected,
        # (n_tokens, dim), in place of gates and cells if these are not needed again.
        grad_gates, hidden = gates, cells
        if not may_overwrite_saved():
            grad_gates, hidden = torch.empty_like(gates), torch.empty_like(cells)
        # Gradient of the outputs before their clip, and the outputs before each step:
        # (n_tokens, projection_dim) each
        grad_projected, outputs_before = torch.empty_like(outputs), torch.empty_like(outputs)
        grad_state = torch.zeros_like(initial_output)
        grad_cells = torch.zeros_like(initial_cells)
        workspace, tanhs = torch.empty_like(initial_cells), torch.empty_like(initial_cells)
        dtype, dim = grad_cells.dtype, grad_cells.size(1)
        grad_bias = grad_cells.new_zeros(4 * dim)
        to_state = PreparedMatrix(weight_state)
        unproject = None if weight_projection is None else PreparedMatrix(weight_projection)
        start = rows.size(0)
        after = cells[start - batch_sizes[-1] :].to(dtype)  # (size, dim), cells of the step
        for t in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[t]
            step, start = slice(start - size, start), start - size
            step_before = slice(start - batch_sizes[t - 1], start)
            before = cells[step_before].to(dtype) if t else initial_cells
            outputs_before[step] = (outputs[step_before] if t else initial_output)[:size]
            grad_hidden = grad_outputs[step] + grad_state[:size]  # (size, projection_dim)
            if unproject is not None:
                if ctx.proj_clip is not None:
                    clamp_backward_(grad_hidden, outputs[step], ctx.proj_clip)
                grad_projected[step] = grad_hidden
                grad_hidden = unproject.product(grad_projected[step]).to(dtype)  # (size, dim)
            of_step = gates[step].to(dtype)  # (size, 4 * dim)
            in_gate, forget_gate, candidate, out_gate = of_step.chunk(4, 1)
            # From here on, a gate may be overwritten by its gradient once it is not needed.
            grad_raw = grad_gates[step] if grad_gates.dtype == dtype else of_step
            grad_in, grad_forget, grad_candidate, grad_out = grad_raw.chunk(4, 1)
            tanh_cells = tanh(after[:size], out=tanhs[:size])  # (size, dim)
            product = torch.mul(grad_hidden, tanh_cells, out=workspace[:size])  # (size, dim)
            grad = tanh_backward(grad_hidden.mul_(out_gate), tanh_cells, grad_hidden)
            grad.add_(grad_cells[:size])
            if ctx.cell_clip is not None:
                clamp_backward_(grad, after[:size], ctx.cell_clip)
            hidden[step] = tanh_cells.mul_(out_gate)
            sigmoid_backward(product, out_gate, grad_out)
            torch.mul(grad, forget_gate, out=grad_cells[:size])
            torch.mul(grad, before[:size], out=product)
            sigmoid_backward(product, forget_gate, grad_forget)
            torch.mul(grad, candidate, out=product)
            tanh_backward(grad.mul_(in_gate), candidate, grad_candidate)
            sigmoid_backward(product, in_gate, grad_in)
            grad_bias.add_(grad_raw.sum(0))
            if grad_raw is of_step:
                grad_gates[step] = of_step
            if t:
                grad_state[:size] = to_state.product(grad_gates[step])
            after = before
        grads: List[Optional[torch.Tensor]] = [None] * 5
        if needs_projection:
            grads[4] = weight_gradient(grad_projected, hidden)  # (projection_dim, dim)
        if needs_inputs:
            grads[0] = matrix_product(grad_gates, weight_input)  # (n_tokens, input_dim)
        if needs_input:
            grads[1] = weight_gradient(grad_gates, rows)  # (4 * dim, input_dim)
        if needs_state:
            grads[2] = weight_gradient(grad_gates, outputs_before)  # (4 * dim, projection_dim)
        if needs_bias:
            grads[3] = grad_bias
        return (
            *(None if grad is None else grad.to(grad_outputs.dtype) for grad in grads),
            *[None] * 5,
        )


def _kept(clip: Optional[float], dtype: torch.dtype) -> Optional[float]:
    """
    Return the least that is saved of a value at its clip, which rounding may make smaller.
    """
    if clip is None:
        return None
    # Without a wait for a GPU that is torch's default device
    return min(clip, torch.tensor(clip, dtype=dtype, device="cpu").item())
