"""
All steps of LSTM layers of one shape, such as those of both directions, in one launch of Triton.

As many programs as the GPU has multiprocessors run at once, and wait for each other after each of
three parts of a step: the gates and cells, in blocks of rows and cells; the projection, in blocks
that have a part of its sum; and the sum of these parts. In Triton's interpreter there is one
program.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from allennlp_elmo_plugin.bilm.kernels.recurrence import Clips, LstmState, LstmWeights
from allennlp_elmo_plugin.bilm.model_call import backward_once, may_overwrite_saved
from allennlp_elmo_plugin.bilm.packing import PackedBatch

TRAINS_TOGETHER = True

# The inputs' part of the gates is computed for as many steps ahead as fit into this size.
MAX_GATES_BYTES = 2**28
# Parts of the sum of a long product
_SPLIT = 8


@triton.jit
def _wait(arrived, target):
    """Wait until `target` programs have arrived."""
    tl.debug_barrier()
    seen = tl.atomic_add(arrived, 1, sem="acq_rel") + 1
    while seen < target:
        seen = tl.atomic_add(arrived, 0, sem="acquire")
    tl.debug_barrier()


@triton.jit
def _product(acc, left, rows, left_stride, right, columns, right_stride, first, last,
             EVEN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Return `acc + left[rows, first:last] @ right[columns, first:last].T`; -1 means no row."""
    ks = tl.arange(0, BK)
    for k in range(first, last, BK):
        a = left + rows[:, None] * left_stride + (k + ks)[None, :]
        b = right + columns[None, :] * right_stride + (k + ks)[:, None]
        is_row, is_column = rows[:, None] >= 0, columns[None, :] >= 0
        if not EVEN:
            is_row = is_row & (k + ks < last)[None, :]
            is_column = is_column & (k + ks < last)[:, None]
        # Other multiprocessors wrote it, so it isn't read from this one's cache.
        a = tl.load(a, is_row, 0.0, cache_modifier=".cg")
        acc = tl.dot(a, tl.load(b, is_column, 0.0), acc, input_precision=PRECISION)
    return acc


@triton.jit
def _partial_products(left, first_row, size, right, parts, n_rows, n_layers, left_rows,
                      K: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr,
                      BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """
    Write `left @ right.T` to `parts`, shape (SPLIT, layers, rows, N), each over a part of the sum.
    """
    n_m, n_n = tl.cdiv(size, BM), tl.cdiv(N, BP)
    length: tl.constexpr = ((K + SPLIT - 1) // SPLIT + BK - 1) // BK * BK
    for tile in range(tl.program_id(0), n_layers * SPLIT * n_m * n_n, tl.num_programs(0)):
        m, rest = tile % n_m, tile // n_m
        n, rest = rest % n_n, rest // n_n
        layer, part = (rest // SPLIT).to(tl.int64), rest % SPLIT
        rows, columns = m * BM + tl.arange(0, BM), n * BP + tl.arange(0, BP)
        acc = _product(
            tl.zeros((BM, BP), tl.float32),
            left + (layer * left_rows + first_row) * K, tl.where(rows < size, rows, -1), K,
            right + layer * N * K, tl.where(columns < N, columns, -1), K,
            part * length, tl.minimum((part + 1) * length, K), K % BK == 0, BK, PRECISION,
        )  # fmt: skip
        out = ((part * n_layers + layer) * n_rows + rows[:, None]) * N + columns[None, :]
        tl.store(parts + out, acc, (rows < size)[:, None] & (columns < N)[None, :])


@triton.jit
def _clamp(values, bound):
    return tl.clamp(values, -bound, bound, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _tanh(values):
    return 2.0 * tl.sigmoid(2.0 * values) - 1.0


_SIZES = ["first", "last", "first_token", "n_gates", "n_layers", "n_rows", "n_tokens"]


@triton.jit(do_not_specialize=_SIZES)
def _forward_steps(gates, weight, projection, outputs, cells, hidden, parts, starts, arrived,
                   first, last, first_token, n_gates, n_layers, n_rows, n_tokens, cell_clip,
                   proj_clip, DIM: tl.constexpr, OUT: tl.constexpr, SAVE: tl.constexpr,
                   BM: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
                   SPLIT: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """
    Run the steps from `first` to `last`. `gates`, (layers, n_gates, 4 * DIM), has the inputs' part
    of the tokens from `first_token` on, and becomes the gates if SAVE. `outputs`, (layers, rows +
    tokens, OUT), begins with the initial ones; `cells` has their places if SAVE, and else one for
    each row. `hidden`, (layers, tokens if SAVE else rows, DIM), is what is projected. `starts` are
    the places of `outputs` where the initial ones and each step begin, and the end.
    """
    n_programs = tl.num_programs(0)
    target = 0
    for t in range(first, last):
        before, start = tl.load(starts + t), tl.load(starts + t + 1)
        size = tl.load(starts + t + 2) - start
        hidden_rows, first_hidden = n_rows, 0
        if SAVE:
            hidden_rows, first_hidden = n_tokens, start - n_rows
        n_m, n_n = tl.cdiv(size, BM), tl.cdiv(DIM, BN)
        for tile in range(tl.program_id(0), n_layers * n_m * n_n, n_programs):
            m, rest = tile % n_m, tile // n_m
            n, layer = rest % n_n, (rest // n_n).to(tl.int64)
            rows, columns = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
            is_out = (rows < size)[:, None] & (columns < DIM)[None, :]
            # The four gates of a cell are neighbours in the product.
            place = tl.arange(0, 4 * BN)
            cell = n * BN + place // 4
            acc = _product(
                tl.zeros((BM, 4 * BN), tl.float32),
                outputs + (layer * (n_rows + n_tokens) + before) * OUT,
                tl.where(rows < size, rows, -1), OUT,
                weight + layer * 4 * DIM * OUT,
                tl.where(cell < DIM, (place % 4) * DIM + cell, -1), OUT,
                0, OUT, OUT % BK == 0, BK, PRECISION,
            )  # fmt: skip
            even, odd = tl.split(tl.reshape(acc, (BM, BN, 2, 2)))
            in_gate, candidate = tl.split(even)
            forget_gate, out_gate = tl.split(odd)
            gate_row = layer * n_gates + start - n_rows - first_token + rows[:, None]
            gate = gates + gate_row * 4 * DIM + columns[None, :]
            in_gate += tl.load(gate, is_out, 0.0).to(tl.float32)
            forget_gate += tl.load(gate + DIM, is_out, 0.0).to(tl.float32)
            candidate += tl.load(gate + 2 * DIM, is_out, 0.0).to(tl.float32)
            out_gate += tl.load(gate + 3 * DIM, is_out, 0.0).to(tl.float32)
            in_gate, forget_gate = tl.sigmoid(in_gate), tl.sigmoid(forget_gate)
            candidate, out_gate = _tanh(candidate), tl.sigmoid(out_gate)
            if SAVE:
                old_row = layer * (n_rows + n_tokens) + before + rows[:, None]
                old = cells + old_row * DIM + columns[None, :]
                new = old + (start - before) * DIM
            else:
                old = cells + (layer * n_rows + rows[:, None]) * DIM + columns[None, :]
                new = old
            values = forget_gate * tl.load(old, is_out, 0.0) + in_gate * candidate
            values = _clamp(values, cell_clip)
            tl.store(new, values, is_out)
            if SAVE:
                tl.store(gate, in_gate, is_out)
                tl.store(gate + DIM, forget_gate, is_out)
                tl.store(gate + 2 * DIM, candidate, is_out)
                tl.store(gate + 3 * DIM, out_gate, is_out)
            hidden_row = layer * hidden_rows + first_hidden + rows[:, None]
            place = hidden + hidden_row * DIM + columns[None, :]
            tl.store(place, out_gate * _tanh(values), is_out)
        target += n_programs
        _wait(arrived, target)
        _partial_products(hidden, first_hidden, size, projection, parts, n_rows, n_layers,
                          hidden_rows, DIM, OUT, SPLIT, BM, BP, BK, PRECISION)  # fmt: skip
        target += n_programs
        _wait(arrived, target)
        for tile in range(tl.program_id(0), tl.cdiv(n_layers * size * OUT, 512), n_programs):
            i = tile * 512 + tl.arange(0, 512)
            layer, row, column = (i // (size * OUT)).to(tl.int64), i // OUT % size, i % OUT
            is_out = i < n_layers * size * OUT
            total = tl.zeros((512,), tl.float32)
            for part in range(SPLIT):
                place = ((part * n_layers + layer) * n_rows + row) * OUT + column
                total += tl.load(parts + place, is_out, 0.0, cache_modifier=".cg")
            place = (layer * (n_rows + n_tokens) + start + row) * OUT + column
            tl.store(outputs + place, _clamp(total, proj_clip), is_out)
        target += n_programs
        _wait(arrived, target)


@triton.jit(do_not_specialize=["n_steps", "n_layers", "n_rows", "n_tokens"])
def _backward_steps(gates, weight, projection, outputs, cells, grad_outputs, grad_projected,
                    grad_cells, parts, starts, arrived, n_steps, n_layers, n_rows, n_tokens,
                    cell_clip, proj_clip, DIM: tl.constexpr, OUT: tl.constexpr, BM: tl.constexpr,
                    BN: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
                    PRECISION: tl.constexpr):  # fmt: skip
    """
    Run all steps from the last, and overwrite `gates` by the gradient of the gates' arguments, and
    `grad_projected`, (layers, tokens, OUT), by that of unclipped outputs. Weights are transposed:
    (layers, OUT, 4 * DIM) and (layers, DIM, OUT). `grad_cells`, (layers, rows, DIM), is zero.
    """
    n_programs = tl.num_programs(0)
    target = 0
    after = 0  # rows of the step after this one
    for back in range(n_steps):
        t = n_steps - 1 - back
        before, start = tl.load(starts + t), tl.load(starts + t + 1)
        size = tl.load(starts + t + 2) - start
        for tile in range(tl.program_id(0), tl.cdiv(n_layers * size * OUT, 512), n_programs):
            i = tile * 512 + tl.arange(0, 512)
            layer, row, column = (i // (size * OUT)).to(tl.int64), i // OUT % size, i % OUT
            is_out = i < n_layers * size * OUT
            token = (layer * n_tokens + start - n_rows + row) * OUT + column
            total = tl.load(grad_outputs + token, is_out, 0.0).to(tl.float32)
            for part in range(SPLIT):
                place = ((part * n_layers + layer) * n_rows + row) * OUT + column
                is_in = is_out & (row < after)
                total += tl.load(parts + place, is_in, 0.0, cache_modifier=".cg")
            place = (layer * (n_rows + n_tokens) + start + row) * OUT + column
            value = tl.load(outputs + place, is_out, 0.0).to(tl.float32)
            total = tl.where(tl.abs(value) >= proj_clip, 0.0, total)
            tl.store(grad_projected + token, total, is_out)
        target += n_programs
        _wait(arrived, target)
        n_m, n_n = tl.cdiv(size, BM), tl.cdiv(DIM, BN)
        for tile in range(tl.program_id(0), n_layers * n_m * n_n, n_programs):
            m, rest = tile % n_m, tile // n_m
            n, layer = rest % n_n, (rest // n_n).to(tl.int64)
            rows, columns = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
            is_out = (rows < size)[:, None] & (columns < DIM)[None, :]
            grad_hidden = _product(
                tl.zeros((BM, BN), tl.float32),
                grad_projected + (layer * n_tokens + start - n_rows) * OUT,
                tl.where(rows < size, rows, -1), OUT,
                projection + layer * DIM * OUT, tl.where(columns < DIM, columns, -1), OUT,
                0, OUT, OUT % BK == 0, BK, PRECISION,
            )  # fmt: skip
            gate_row = layer * n_tokens + start - n_rows + rows[:, None]
            gate = gates + gate_row * 4 * DIM + columns[None, :]
            in_gate = tl.load(gate, is_out, 0.0).to(tl.float32)
            forget_gate = tl.load(gate + DIM, is_out, 0.0).to(tl.float32)
            candidate = tl.load(gate + 2 * DIM, is_out, 0.0).to(tl.float32)
            out_gate = tl.load(gate + 3 * DIM, is_out, 0.0).to(tl.float32)
            old_row = layer * (n_rows + n_tokens) + before + rows[:, None]
            old = cells + old_row * DIM + columns[None, :]
            new = old + (start - before) * DIM
            cell_before, cell = tl.load(old, is_out, 0.0), tl.load(new, is_out, 0.0)
            carried = grad_cells + (layer * n_rows + rows[:, None]) * DIM + columns[None, :]
            tanh = _tanh(cell)
            grad_cell = grad_hidden * out_gate * (1.0 - tanh * tanh)
            grad_cell += tl.load(carried, is_out, 0.0)
            grad_cell = tl.where(tl.abs(cell) >= cell_clip, 0.0, grad_cell)
            tl.store(carried, grad_cell * forget_gate, is_out)
            grad = grad_cell * candidate * in_gate * (1.0 - in_gate)
            tl.store(gate, grad, is_out)
            grad = grad_cell * cell_before * forget_gate * (1.0 - forget_gate)
            tl.store(gate + DIM, grad, is_out)
            grad = grad_cell * in_gate * (1.0 - candidate * candidate)
            tl.store(gate + 2 * DIM, grad, is_out)
            grad = grad_hidden * tanh * out_gate * (1.0 - out_gate)
            tl.store(gate + 3 * DIM, grad, is_out)
        target += n_programs
        _wait(arrived, target)
        if t > 0:
            _partial_products(gates, start - n_rows, size, weight, parts, n_rows, n_layers,
                              n_tokens, 4 * DIM, OUT, SPLIT, BM, BP, BK, PRECISION)  # fmt: skip
        after = size
        target += n_programs
        _wait(arrived, target)


@functools.cache
def _device_properties(device: torch.device) -> tuple[int, dict[str, bool], bool]:
    """Return the number of programs, options of each launch, and whether it is a Hopper GPU."""
    if device.type == "cpu":
        return 1, {}, False
    n_programs = torch.cuda.get_device_properties(device).multi_processor_count
    is_hopper = torch.cuda.get_device_capability(device) == (9, 0)
    return n_programs, {"launch_cooperative_grid": True}, is_hopper


def _block_rows(n_rows: int) -> int:
    return 16 if n_rows <= 16 else 64 if n_rows <= 64 else 128


def _launch(
    kernel: Any, block_rows: int, clips: Clips, *tensors: torch.Tensor, **sizes: Any
) -> None:
    weight, dim = tensors[1], sizes["DIM"]
    n_programs, options, is_hopper = _device_properties(weight.device)
    is_half, is_inference = weight.dtype == torch.bfloat16, sizes.get("SAVE") is False
    # With few cells, smaller blocks keep all multiprocessors busy. The largest blocks don't fit the
    # shared memory of other GPUs.
    small = is_inference and not is_half and dim <= 1024
    large = is_inference and is_half and dim > 1024 and is_hopper
    arrived = torch.zeros(1, dtype=torch.int32, device=weight.device)
    cell_clip, proj_clip = (math.inf if clip is None else clip for clip in clips)
    with torch.cuda.device_of(weight):
        kernel[(n_programs,)](
            *tensors, arrived, cell_clip=cell_clip, proj_clip=proj_clip, **sizes, BM=block_rows,
            BN=16 if small else 64 if large else 32, BP=32 if small else 64,
            BK=64 if is_half else 32, SPLIT=_SPLIT, PRECISION="tf32x3",
            num_warps=4 if block_rows < 128 else 8, num_stages=3, **options,
        )  # fmt: skip


def _run_stacked(
    inputs: torch.Tensor,
    weights: Sequence[torch.Tensor],
    state: LstmState,
    packing: PackedBatch,
    clips: Clips,
    save: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """
    Run layers of one shape over packed inputs, shape `(n_layers, n_tokens, in_dim)`. Weights have
    the shapes `(n_layers, 4 * dim, in_dim)`, `(n_layers, 4 * dim, projection_dim)`, `(n_layers, 4 *
    dim)` and `(n_layers, projection_dim, dim)`, and the type of the inputs.

    Return outputs, shape `(n_layers, n_sequences + n_tokens, projection_dim)`, which begin with the
    initial ones; cells in float32, after each sequence's last token, or with `save` in the shape of
    outputs; gates and what was projected, of all tokens if they are saved.
    """
    weight_input, weight_state, bias, projection = weights
    batch_sizes, starts = packing.batch_sizes, packing.starts
    n_layers, n_tokens = inputs.shape[:2]
    n_rows, (out, dim) = batch_sizes[0], projection.shape[1:]
    outputs = inputs.new_empty(n_layers, n_rows + n_tokens, out)
    outputs[:, :n_rows], cells = state
    if save:
        cells = cells.new_empty(n_layers, n_rows + n_tokens, dim)
        cells[:, :n_rows] = state[1]
    else:
        cells = cells.clone()
    hidden = inputs.new_empty(n_layers, n_tokens if save else n_rows, dim)
    parts = cells.new_empty(_SPLIT, n_layers, n_rows, out)
    chunk = n_tokens if save else MAX_GATES_BYTES // (n_layers * 4 * dim * inputs.element_size())
    last = first_token = 0
    while last < len(batch_sizes):
        first, n_gates = last, 0
        while last < len(batch_sizes) and (n_gates == 0 or n_gates + batch_sizes[last] <= chunk):
            n_gates += batch_sizes[last]
            last += 1
        rows = inputs[:, first_token : first_token + n_gates]
        gates = torch.baddbmm(bias.unsqueeze(1), rows, weight_input.mT)
        # Steps with many rows and steps with few, in blocks of their size
        for block_rows, steps in itertools.groupby(map(_block_rows, batch_sizes[first:last])):
            end = first + len(list(steps))
            _launch(
                _forward_steps, block_rows, clips, gates, weight_state, projection, outputs, cells,
                hidden, parts, starts, first=first, last=end, first_token=first_token,
                n_gates=n_gates, n_layers=n_layers, n_rows=n_rows, n_tokens=n_tokens, DIM=dim,
                OUT=out, SAVE=save,
            )  # fmt: skip
            first = end
        first_token += n_gates
    return outputs, cells, gates, hidden


def run(
    layers: Sequence[LstmWeights],
    inputs: Sequence[torch.Tensor],
    packing: PackedBatch,
    state: LstmState,
    has_gradient: bool,
) -> tuple[Any, torch.Tensor]:
    """Do what `recurrence.run` does."""
    first, *others = layers
    if has_gradient:
        tensors = (each for rows, layer in zip(inputs, layers) for each in (rows, *layer.weights))
        ran = _StackedRecurrence.apply(state, packing, first.clips, first.dtype, *tensors)
        return ran[:-1], ran[-1]
    if (*others,) not in first.stacks:
        of_layers = zip(*(layer.weights for layer in layers))
        first.stacks[(*others,)] = [torch.stack(each).to(first.dtype) for each in of_layers]
    weights, rows = first.stacks[(*others,)], torch.stack([*inputs]).to(first.dtype)
    outputs, cells, *_ = _run_stacked(rows, weights, state, packing, first.clips)
    return outputs[:, packing.batch_sizes[0] :].to(cells.dtype), cells


class _StackedRecurrence(torch.autograd.Function):
    """
    `_run_stacked` with its gradient, which stops at the initial state. `tensors` are, of one layer
    after the other, the inputs, shape `(n_tokens, in_dim)`, and the four weights. Products have the
    type `dtype`. Return each layer's outputs, shape `(n_tokens, projection_dim)`, and the cells
    after each sequence's last token, shape `(n_layers, n_sequences, dim)`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        state: LstmState,
        packing: PackedBatch,
        clips: Clips,
        dtype: torch.dtype,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        inputs, *weights = (torch.stack(tensors[kind::5]).to(dtype) for kind in range(5))
        ran = _run_stacked(inputs, weights, state, packing, clips, save=True)
        ctx.save_for_backward(inputs, *weights, *ran)
        cell_clip, proj_clip = clips
        if proj_clip is not None:  # rounded like the outputs
            proj_clip = torch.tensor(proj_clip, dtype=dtype, device="cpu").item()
        ctx.packing, ctx.clips = packing, (cell_clip, proj_clip)
        n_rows = packing.batch_sizes[0]
        outputs, cells = ran[0][:, n_rows:], ran[1]
        last_cells = cells.index_select(1, packing.last + n_rows)
        ctx.mark_non_differentiable(last_cells)
        return *outputs.to(tensors[0].dtype), last_cells

    @backward_once
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        # Read once: gradient checkpointing frees them after that.
        inputs, weight_input, weight_state, _, projection, *ran = ctx.saved_tensors
        outputs, cells, gates, hidden = ran
        batch_sizes: list[int] = ctx.packing.batch_sizes
        n_layers, n_tokens = inputs.shape[:2]
        n_rows, (out, dim) = batch_sizes[0], projection.shape[1:]
        if not may_overwrite_saved():
            gates = gates.clone()
        grad_outputs = torch.stack(grads[:-1])  # (n_layers, n_tokens, projection_dim)
        grad_projected = torch.empty_like(outputs[:, n_rows:])
        _launch(
            _backward_steps, _block_rows(n_rows), ctx.clips, gates, weight_state.mT.contiguous(),
            projection.mT.contiguous(), outputs, cells, grad_outputs, grad_projected,
            cells.new_zeros(n_layers, n_rows, dim), cells.new_empty(_SPLIT, n_layers, n_rows, out),
            ctx.packing.starts, n_steps=len(batch_sizes), n_layers=n_layers, n_rows=n_rows,
            n_tokens=n_tokens, DIM=dim, OUT=out,
        )  # fmt: skip
        grad_gates = gates
        if batch_sizes[-1] == n_rows:
            before = outputs[:, :n_tokens]  # the outputs before each token
        else:
            steps = zip(outputs.split([n_rows, *batch_sizes], 1), batch_sizes)
            before = torch.cat([rows[:, :size] for rows, size in steps], 1)
        products = {
            0: (grad_gates, weight_input),
            1: (grad_gates.mT, inputs),
            2: (grad_gates.mT, before),
            4: (grad_projected.mT, hidden),
        }
        results: list[Any] = [[None] * n_layers] * 5
        for kind, (left, right) in products.items():
            if any(ctx.needs_input_grad[4 + kind :: 5]):
                results[kind] = torch.bmm(left, right).float()
        results[3] = grad_gates.sum(1, dtype=torch.float32)
        return (*[None] * 4, *itertools.chain(*zip(*results)))
