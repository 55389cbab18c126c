"""
The recurrence of an LSTM with a clipped cell and a projection, and its gradient. Matrix products
and what the backward pass needs may be in bfloat16; cells are always float32.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    PreparedMatrix,
    matrix_product,
    padded_rows,
    stacked,
    weight_gradient,
)
from allennlp_elmo_plugin.bilm.model_call import backward_once, may_overwrite_saved
from allennlp_elmo_plugin.bilm.packing import PackedBatch

# Whether directions run together also where gradients or random numbers are needed
TRAINS_TOGETHER = False
# The inputs' part of the gates is computed for as many steps ahead as fit into this size, or into
# 256 MB on a GPU.
CHUNK_BYTES = 8 * 2**20
# As tensors: an operator takes twice as long with a Python number.
_MINUS_ONE, _TWO = torch.tensor([-1.0, 2.0], device="cpu")

LstmState = tuple[torch.Tensor, torch.Tensor]
"""Outputs `(n_layers, n_sequences, projection_dim)` and cells `(n_layers, n_sequences, dim)`."""

Clips = tuple[float | None, float | None]
"""Bounds of cell and output."""


class LstmWeights:
    """
    A layer's weights as they are, and as inference reads them: doubled for the candidate, since
    `tanh(x) = 2 * sigmoid(2 * x) - 1`.
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], clips: Clips, precision: str = "float32"
    ) -> None:
        self.weights, self.clips = weights, clips
        weight_input, weight_state, bias, *projection = weights
        scales = torch.ones_like(bias)  # (4 * dim,)
        scales.chunk(4)[2].fill_(2.0)
        self.input = PreparedMatrix(weight_input.t(), precision, scales)
        self.state = PreparedMatrix(weight_state.t(), precision, scales)
        self.projection = PreparedMatrix(projection[0].t(), precision) if projection else None
        self.dtype = self.state.dtype
        self.bias = (bias.detach() * scales).to(self.dtype)
        self.stacks: dict[Any, Any] = {}


def run(
    layers: Sequence[LstmWeights],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    state: LstmState,
    has_gradient: bool,
) -> tuple[Any, torch.Tensor]:
    """
    Run layers of one shape over packed inputs, shape `(n_tokens, input_dim)` each. Return outputs,
    shape `(n_tokens, projection_dim)` each, in the type of the inputs, and cells, shape `(n_layers,
    n_sequences, dim)`.
    """
    if not has_gradient:
        outputs, cells = run_steps(layers, inputs, packing.batch_sizes, state)
        return outputs.to(cells.dtype), cells
    ran = [
        _Recurrence.apply(part, packing.batch_sizes, layer.clips, layer.dtype, rows, *layer.weights)
        for part, layer, rows in zip(zip(*(each.split(1) for each in state)), layers, inputs)
    ]
    return [outputs for outputs, _ in ran], torch.cat([cells for _, cells in ran])


def run_steps(
    layers: Sequence[LstmWeights],
    inputs: Sequence[torch.Tensor],
    batch_sizes: list[int],
    state: LstmState,
    saved: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Run layers of one shape, such as those of two directions, step by step together. Each has packed
    `inputs`, shape `(n_tokens, input_dim)`. A single layer can write its gates and cells to
    `saved`, shapes `(n_tokens, 4 * dim)` and `(n_tokens, dim)`. Return all outputs, shape
    `(n_layers, n_tokens, projection_dim)`, and the cells after each sequence's last token, shape
    `(n_layers, n_sequences, dim)`.
    """
    cell_clip, proj_clip = layers[0].clips
    dtype = layers[0].dtype
    before, all_cells = state[0].to(dtype), state[1].clone()
    n_layers, n_sequences, dim = all_cells.shape
    all_outputs = before.new_empty(n_layers, inputs[0].size(0), before.size(2))
    all_gates = all_cells.new_empty(n_layers, n_sequences, 4 * dim)
    workspace = torch.empty_like(all_cells)
    weight = projection = None
    on_gpu = all_cells.device.type != "cpu"
    if on_gpu or (n_sequences == 1 and layers[0].state.is_exact):
        # A GPU starts fewer operations if it multiplies all layers at once. On the CPU, one row is
        # multiplied fastest by the weights as they are.
        weight = stacked(*(layer.state for layer in layers))
        if layers[0].projection:
            projection = stacked(*(layer.projection for layer in layers if layer.projection))
    from_inputs = _input_gates(layers, inputs, batch_sizes, weight is not None)
    start = n_rows = 0
    # Of each step: (n_layers, size, projection_dim), (n_layers, size, 4 * dim)
    steps = zip(batch_sizes, all_outputs.split(batch_sizes, 1), from_inputs)
    for size, outputs, arguments in steps:
        if size != n_rows:  # at first, and where sequences have ended
            n_rows = size
            before = before[:, :size]
            gates, cells, hidden = (rows[:, :size] for rows in (all_gates, all_cells, workspace))
            # (n_layers, size, dim) each
            in_gate, forget_gate, candidate, out_gate = gates.chunk(4, 2)
        if weight is None:
            for layer, rows, added, out in zip(layers, before, arguments, gates):
                torch.sigmoid(layer.state.product(rows, added).to(out.dtype), out=out)
        else:
            torch.sigmoid(arguments.baddbmm_(before, weight).to(gates.dtype), out=gates)
        torch.add(_MINUS_ONE, candidate, alpha=2, out=candidate)
        cells.mul_(forget_gate).addcmul_(in_gate, candidate)
        if cell_clip is not None:
            cells.clamp_(-cell_clip, cell_clip)
        _tanh(cells, out=hidden).mul_(out_gate)  # (n_layers, size, dim)
        if projection is None:
            for layer, rows, out in zip(layers, hidden.to(dtype), outputs):
                out.copy_(rows if layer.projection is None else layer.projection.product(rows))
        else:
            torch.bmm(hidden.to(dtype), projection, out=outputs)
        before = outputs  # (n_layers, size, projection_dim)
        if proj_clip is not None:
            outputs.clamp_(-proj_clip, proj_clip)
        if saved is not None:
            for target, values in zip(saved, (gates, cells)):
                target[start : start + size] = values[0]
        start += size
    return all_outputs, all_cells


def _input_gates(
    layers: Sequence[LstmWeights],
    inputs: Sequence[torch.Tensor],
    batch_sizes: list[int],
    in_one: bool,
) -> Iterator[Any]:
    """Yield the inputs' part of the gates of each step: one tensor a layer, or `in_one`."""
    inputs = [rows.to(layer.dtype) for layer, rows in zip(layers, inputs)]
    chunk_bytes = CHUNK_BYTES if inputs[0].device.type == "cpu" else 32 * CHUNK_BYTES
    n_rows = chunk_size = chunk_bytes // (layers[0].bias.numel() * inputs[0].element_size())
    chunks: list[list[int]] = []  # the sizes of the steps of each chunk
    for size in batch_sizes:
        n_rows += size
        if n_rows > chunk_size:
            chunks.append([])
            n_rows = size
        chunks[-1].append(size)
    parts = zip(*(rows.split(list(map(sum, chunks))) for rows in inputs))
    for sizes, rows_of_layers in zip(chunks, parts):
        products = [
            layer.input.product(padded_rows(rows), layer.bias)[: sum(sizes)]
            for layer, rows in zip(layers, rows_of_layers)
        ]
        if in_one:
            yield from torch.stack(products).split(sizes, 1)
        else:
            yield from zip(*(product.split(sizes) for product in products))


class _Recurrence(torch.autograd.Function):
    """
    `run_steps` of one layer with its gradient, which stops at the initial state. A step's gradients
    are, from those of the step after it (primes) and with zeros where `output` or `cell` is clipped

    ```
    d_output = grad + U^T d_gates'          d_hidden = P^T d_output
    d_cell   = d_hidden * o * (1 - tanh(cell)^2) + d_cell' * f'
    d_i = d_cell * g * i * (1 - i)          d_f = d_cell * cell_before * f * (1 - f)
    d_g = d_cell * i * (1 - g^2)            d_o = d_hidden * tanh(cell) * o * (1 - o)
    ```
    """

    @staticmethod
    def forward(
        ctx: Any,
        state: LstmState,
        batch_sizes: list[int],
        clips: Clips,
        dtype: torch.dtype,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Products, and what is saved of `tensors`, inputs and weights, have the type `dtype`."""
        inputs, *weights = (tensor.to(dtype) for tensor in tensors)
        n_tokens, dim = inputs.size(0), state[1].size(2)
        saved = inputs.new_empty(n_tokens, 4 * dim), inputs.new_empty(n_tokens, dim)
        layer = LstmWeights(weights, clips)
        (outputs,), last_cells = run_steps([layer], [inputs], batch_sizes, state, saved)
        ctx.save_for_backward(*state, outputs, *saved, inputs, *weights)
        ctx.batch_sizes = batch_sizes
        # Rounded like the saved values, on the CPU without a wait for a GPU
        ctx.cell_clip, ctx.proj_clip = (
            None if clip is None else torch.tensor(clip, dtype=dtype, device="cpu").item()
            for clip in clips
        )
        ctx.mark_non_differentiable(last_cells)
        return outputs.to(tensors[0].dtype), last_cells

    @backward_once
    def backward(ctx: Any, grad_outputs: torch.Tensor, _: Any) -> Any:
        # Read once: gradient checkpointing frees them after that.
        initial_output, initial_cells, outputs, gates, cells, *tensors = ctx.saved_tensors
        initial_output, initial_cells = initial_output[0], initial_cells[0]
        inputs, weight_input, weight_state, _, *projection = tensors
        batch_sizes: list[int] = ctx.batch_sizes
        # Step by step, from the last, `gates` is overwritten by the gradient of the gates'
        # arguments, and `cells` by what was projected.
        if not may_overwrite_saved():
            gates, cells = gates.clone(), cells.clone()
        grad_projected = torch.empty_like(outputs)  # (n_tokens, projection_dim)
        outputs_before = torch.empty_like(outputs)  # (n_tokens, projection_dim)
        grad_state = torch.zeros_like(initial_output)
        grad_cells = torch.zeros_like(initial_cells)
        workspace, all_tanhs = torch.empty_like(initial_cells), torch.empty_like(initial_cells)
        dtype, dim = grad_cells.dtype, grad_cells.size(1)
        grad_bias = grad_cells.new_zeros(4 * dim)
        # Not doubled: these are gradients of the tanh's argument itself.
        to_state = PreparedMatrix(weight_state)
        unproject = PreparedMatrix(projection[0]) if projection else None
        start = inputs.size(0)
        cells_after = cells[start - batch_sizes[-1] :].to(dtype)  # (size, dim)
        for t in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[t]
            step, start = slice(start - size, start), start - size
            step_before = slice(start - batch_sizes[t - 1], start)
            cells_before = cells[step_before].to(dtype) if t else initial_cells
            outputs_before[step] = (outputs[step_before] if t else initial_output)[:size]
            grad_output = grad_outputs[step] + grad_state[:size]  # (size, projection_dim)
            if ctx.proj_clip is not None:
                _clamp_backward_(grad_output, outputs[step], ctx.proj_clip)
            if unproject is None:
                grad_hidden = grad_output
            else:
                grad_projected[step] = grad_output
                grad_hidden = unproject.product(grad_projected[step]).to(dtype)  # (size, dim)
            step_gates = gates[step].to(dtype)  # (size, 4 * dim), in float32 a view
            in_gate, forget_gate, candidate, out_gate = step_gates.chunk(4, 1)
            tanhs = _tanh(cells_after[:size], out=all_tanhs[:size])  # (size, dim)
            # The gradient of one gate after the other
            grad_gate = torch.mul(grad_hidden, tanhs, out=workspace[:size])  # (size, dim)
            grad_cell = _tanh_backward(grad_hidden.mul_(out_gate), tanhs, out=grad_hidden)
            grad_cell.add_(grad_cells[:size])
            if ctx.cell_clip is not None:
                _clamp_backward_(grad_cell, cells_after[:size], ctx.cell_clip)
            cells[step] = tanhs.mul_(out_gate)
            _sigmoid_backward(grad_gate, out_gate, out=out_gate)
            torch.mul(grad_cell, forget_gate, out=grad_cells[:size])
            torch.mul(grad_cell, cells_before[:size], out=grad_gate)
            _sigmoid_backward(grad_gate, forget_gate, out=forget_gate)
            torch.mul(grad_cell, candidate, out=grad_gate)
            _tanh_backward(grad_cell.mul_(in_gate), candidate, out=candidate)
            _sigmoid_backward(grad_gate, in_gate, out=in_gate)
            grad_bias.add_(step_gates.sum(0))
            if gates.dtype != dtype:
                gates[step] = step_gates
            if t:
                grad_state[:size] = to_state.product(gates[step])
            cells_after = cells_before
        grad_gates, hidden = gates, cells
        needed = ctx.needs_input_grad[4:]
        grads = [
            matrix_product(grad_gates, weight_input) if needed[0] else None,
            weight_gradient(grad_gates, inputs) if needed[1] else None,
            weight_gradient(grad_gates, outputs_before) if needed[2] else None,
            grad_bias,
        ]
        if projection:
            grads.append(weight_gradient(grad_projected, hidden) if needed[4] else None)
        dtype = grad_outputs.dtype
        return (*[None] * 4, *(None if grad is None else grad.to(dtype) for grad in grads))


def _tanh(values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    # On the CPU torch calls MKL, whose tanh is several times slower on processors not by Intel.
    if values.device.type == "cpu":
        sigmoids = torch.mul(values, _TWO, out=out).sigmoid_()
        return torch.add(_MINUS_ONE, sigmoids, alpha=2, out=out)
    return torch.tanh(values, out=out)


def _tanh_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.tanh_backward(grad, output, grad_input=out)


def _sigmoid_backward(grad: torch.Tensor, output: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.sigmoid_backward(grad, output, grad_input=out)


def _clamp_backward_(grad: torch.Tensor, values: torch.Tensor, clip: float) -> torch.Tensor:
    """Set the gradient to zero, in place, where values are at or beyond `-clip` or `clip`."""
    return torch.ops.aten.hardtanh_backward(grad, values, -clip, clip, grad_input=grad)
