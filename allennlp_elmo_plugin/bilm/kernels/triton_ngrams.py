"""
The convolutions over a word's characters and their maximum, for all filters in one launch of
Triton, which looks characters up in a table of their products; and the gradient in another launch.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from allennlp_elmo_plugin.bilm.kernels.ngrams import make_table
from allennlp_elmo_plugin.bilm.model_call import backward_once

# How many words a program of the backward pass has
_WORDS_EACH = 4


@triton.jit
def _widths_of(filters, FIRSTS: tl.constexpr, WIDTHS: tl.constexpr):
    # From constants, so that the compiler knows that neighbours are equal and loads them at once.
    widths = tl.where(filters >= 0, WIDTHS[0], 0)
    for k in tl.static_range(1, len(WIDTHS)):
        widths = tl.where(filters >= FIRSTS[k], WIDTHS[k], widths)
    return widths


@triton.jit(do_not_specialize=["n_characters", "padding"])
def _forward(ids, table, bias, out, positions, n_characters, padding, LENGTH: tl.constexpr,
             N: tl.constexpr, WIDEST: tl.constexpr, NARROWEST: tl.constexpr,
             FIRSTS: tl.constexpr, WIDTHS: tl.constexpr, ACTIVATION: tl.constexpr,
             SAVE: tl.constexpr, BF: tl.constexpr, BC: tl.constexpr):  # fmt: skip
    """
    Each program has a word, the first axis of the grid, and a block of filters. So programs that
    run at once have the same filters, and find the rows of their letters in the cache.
    """
    word = tl.program_id(0).to(tl.int64)
    filters = tl.program_id(1) * BF + tl.arange(0, BF)
    is_filter = filters < N
    widths = _widths_of(filters, FIRSTS, WIDTHS)
    row = ids + word * LENGTH
    places = tl.arange(0, BC)
    characters = tl.load(row + places, places < LENGTH, 0).to(tl.int32)
    length = tl.max(tl.where((places < LENGTH) & (characters != padding), places + 1, 0), 0)
    is_wrong = tl.max(tl.where((characters < 0) | (characters >= n_characters), 1, 0), 0)
    # The n-gram that begins at the end is padding, as all after it.
    n_ngrams = tl.minimum(length, LENGTH - NARROWEST) + 1
    n_ngrams = tl.where(is_wrong > 0, 0, n_ngrams)  # and the result NaN
    best = tl.full((BF,), float("-inf"), tl.float32)
    position = tl.zeros((BF,), tl.int32)
    for p in range(0, n_ngrams):
        total = tl.zeros((BF,), tl.float32)
        for j in tl.static_range(WIDEST):
            character = tl.load(row + p + j, p + j < LENGTH, 0).to(tl.int64)
            values = table + (character * WIDEST + j) * N + filters
            total += tl.load(values, is_filter & (j < widths), 0.0)
        # NaN wins and stays.
        is_better = ((total > best) | (total != total)) & (p + widths <= LENGTH)
        best = tl.where(is_better, total, best)
        if SAVE:
            position = tl.where(is_better, p, position)
    value = best + tl.load(bias + filters, is_filter, 0.0)
    if ACTIVATION == "relu":
        value = tl.where(value <= 0.0, 0.0, value)
    if ACTIVATION == "tanh":
        e = tl.exp(-2.0 * tl.abs(value))
        value = tl.where(value < 0.0, -1.0, 1.0) * ((1.0 - e) / (1.0 + e))
    value = tl.where(is_wrong > 0, float("nan"), value)
    tl.store(out + word * N + filters, value, is_filter)
    if SAVE:
        tl.store(positions + word * N + filters, position.to(tl.int16), is_filter)


@triton.jit(do_not_specialize=["n_words", "words_each", "n_characters"])
def _backward(ids, grad, out, positions, grad_table, grad_bias, n_words, words_each, n_characters,
              LENGTH: tl.constexpr, N: tl.constexpr, WIDEST: tl.constexpr, FIRSTS: tl.constexpr,
              WIDTHS: tl.constexpr, ACTIVATION: tl.constexpr, ATOMIC: tl.constexpr,
              BF: tl.constexpr):  # fmt: skip
    """
    Add to `grad_table` and `grad_bias`, which are zero. With ATOMIC, each program has `words_each`
    words, all places of n-grams and a block of filters. Without it, it has all words, one place and
    a block of filters, which no other program writes to: sums are in the order of the words.
    """
    filters = tl.program_id(1) * BF + tl.arange(0, BF)
    is_filter = filters < N
    widths = _widths_of(filters, FIRSTS, WIDTHS)
    PLACES: tl.constexpr = WIDEST if ATOMIC else 1
    first = tl.program_id(0) * words_each if ATOMIC else 0
    place = 0 if ATOMIC else tl.program_id(0)
    total = tl.zeros((BF,), tl.float32)
    for word in range(first, tl.minimum(first + words_each, n_words)):
        values = tl.load(grad + word * N + filters, is_filter, 0.0)
        result = tl.load(out + word * N + filters, is_filter, 0.0)
        if ACTIVATION == "relu":
            values = tl.where(result <= 0.0, 0.0, values)
        if ACTIVATION == "tanh":
            values *= 1.0 - result * result
        total += values
        position = tl.load(positions + word * N + filters, is_filter, 0).to(tl.int32)
        for k in tl.static_range(PLACES):
            j = place + k
            is_in = is_filter & (j < widths)
            character = tl.load(ids + word * LENGTH + position + j, is_in, 0).to(tl.int64)
            is_in = is_in & (character >= 0) & (character < n_characters)
            if ACTIVATION == "relu":
                is_in = is_in & (values != 0.0)
            target = grad_table + (character * WIDEST + j) * N + filters
            if ATOMIC:
                tl.atomic_add(target, values, is_in, sem="relaxed")
            else:
                tl.store(target, tl.load(target, is_in, 0.0) + values, is_in)
        if not ATOMIC:
            tl.debug_barrier()
    if ATOMIC:
        tl.atomic_add(grad_bias + filters, total, is_filter, sem="relaxed")
    else:
        tl.store(grad_bias + filters, total, is_filter & (place == 0))


def make_tables(embeddings: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return one table of all filters, shape `(n_characters, widest, n_filters)`."""
    widest = max(weight.size(2) for weight in weights)
    padded = [torch.nn.functional.pad(weight, (0, widest - weight.size(2))) for weight in weights]
    return [make_table(embeddings, torch.cat(padded))]


def max_over_ngrams(
    ids: torch.Tensor,
    tables: Sequence[torch.Tensor],
    bias: torch.Tensor,
    filters: Sequence[tuple[int, int]],
    activation: str,
    padding: int,
) -> tuple[torch.Tensor, None]:
    """Do what `ngrams.max_over_ngrams` does. A wrong id gives NaN."""
    return _MaxOverNgrams.apply(ids, *tables, bias, filters, activation, padding), None


class _MaxOverNgrams(torch.autograd.Function):
    """`max_over_ngrams` with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        ids: torch.Tensor,
        table: torch.Tensor,
        bias: torch.Tensor,
        filters: Sequence[tuple[int, int]],
        activation: str,
        padding: int,
    ) -> torch.Tensor:
        ids, table = ids.contiguous(), table.contiguous()
        (n_words, length), (n_characters, widest, n) = ids.shape, table.shape
        widths, numbers = zip(*filters)
        firsts = tuple(sum(numbers[:k]) for k in range(len(numbers)))
        save = any(ctx.needs_input_grad)
        out = table.new_empty(n_words, n)
        positions = table.new_empty((n_words, n) if save else 0, dtype=torch.int16)
        constants = {"LENGTH": length, "N": n, "WIDEST": widest, "ACTIVATION": activation}
        constants |= {"FIRSTS": firsts, "WIDTHS": widths}
        with torch.cuda.device_of(ids):
            _forward[(n_words, triton.cdiv(n, 256))](
                ids, table, bias, out, positions, n_characters, padding, NARROWEST=min(widths),
                SAVE=save, BF=256, BC=triton.next_power_of_2(length), num_warps=1, **constants,
            )  # fmt: skip
        if save:
            ctx.save_for_backward(ids, out, positions)
            ctx.shape, ctx.constants = table.shape, constants
        return out

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ids, out, positions = ctx.saved_tensors
        n_words, (n_characters, widest, n) = ids.size(0), ctx.shape
        grad_table, grad_bias = grad.new_zeros(ctx.shape), grad.new_zeros(n)
        if is_atomic := not torch.are_deterministic_algorithms_enabled():
            block, num_warps, words_each = 128, 4, _WORDS_EACH
            first = triton.cdiv(n_words, words_each)
        else:
            block, num_warps, words_each, first = 32, 1, n_words, widest
        with torch.cuda.device_of(ids):
            _backward[(first, triton.cdiv(n, block))](
                ids, grad.contiguous(), out, positions, grad_table, grad_bias, n_words, words_each,
                n_characters, ATOMIC=is_atomic, BF=block, num_warps=num_warps,
                **ctx.constants,
            )  # fmt: skip
        return None, grad_table, grad_bias, None, None, None
