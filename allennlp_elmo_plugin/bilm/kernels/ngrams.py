"""
The convolutions over a word's characters and their maximum, by looking characters up in tables of
their products with the filters.
"""

from collections.abc import Sequence
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import Linear
from allennlp_elmo_plugin.bilm.model_call import backward_once

# Words are grouped by length, rounded up to a multiple of `_LENGTH_STEP` characters. Fewer than
# `FEW_WORDS` words are one group.
_LENGTH_STEP = 4
FEW_WORDS = 64
# How many values a convolution has before its maximum
CHUNK = 2**22


def make_table(embeddings: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """
    Return the products of characters, shape `(n_characters, dim)`, with each place of filters,
    shape `(n_filters, dim, width)`. The shape is `(n_characters, width, n_filters)`.
    """
    width = weight.size(2)
    weight = weight.permute(2, 0, 1).flatten(0, 1)  # (width * n_filters, dim)
    no_bias = weight.new_zeros(weight.size(0))
    return Linear.apply(embeddings, weight, no_bias, weight.dtype).unflatten(1, (width, -1))


def make_tables(embeddings: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the table of each convolution, shape `(width, n_characters, n_filters)`."""
    return [make_table(embeddings, weight).transpose(0, 1).contiguous() for weight in weights]


def max_over_ngrams(
    ids: torch.Tensor,
    tables: Sequence[torch.Tensor],
    bias: torch.Tensor,
    filters: Sequence[tuple[int, int]],
    activation: str,
    padding: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    Return `activation(max over p of sum over j < width of table[ids[:, p + j], j] + bias)`, shape
    `(n_words, n_filters)`, of character ids, shape `(n_words, length)`, and a bias, shape
    `(n_filters,)`; and the order of the words, unless it is the given one. `filters` are pairs of a
    width and a number. A word's end has only `padding`.
    """
    groups, order = [ids.long()], None
    # Sizes that depend on the words would have to be copied from a GPU.
    if ids.device.type == "cpu":
        groups, order = _by_length(groups[0], max(width for width, _ in filters), padding)
    maxima = torch.cat([_MaxOverNgrams.apply(table, *groups) for table in tables], 1) + bias
    return maxima.relu() if activation == "relu" else maxima.tanh(), order


def _by_length(
    character_ids: torch.Tensor, widest: int, padding: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """
    Return groups of words of nearly the same length, and the order of the words in them, shape
    `(n_words,)`. A group is cut one n-gram after its length, since all later n-grams are equal.
    """
    places = torch.arange(1, character_ids.size(1) + 1, device="cpu")
    lengths = ((character_ids != padding) * places).amax(1)
    order = lengths.argsort()
    sorted_ids = character_ids[order]
    steps = torch.div(lengths[order] - 1, _LENGTH_STEP, rounding_mode="floor") + 1
    if len(steps) < FEW_WORDS:
        steps = steps[-1:].expand(len(steps))
    values, counts = steps.unique_consecutive(return_counts=True)
    groups = [
        group[:, : step * _LENGTH_STEP + widest]
        for group, step in zip(sorted_ids.split(counts.tolist()), values.tolist())
    ]
    return groups, order


class _MaxOverNgrams(torch.autograd.Function):
    """
    `max over p of sum over j of table[j, ids[:, p + j]]`: a convolution over characters and its
    maximum over positions, computed by lookup. From a table, shape `(width, n_characters,
    n_filters)`, and groups of character ids, `(n, timesteps)` each, return `(n_words, n_filters)`.
    """

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, *groups: torch.Tensor) -> torch.Tensor:
        width, n_characters, n_filters = table.shape
        flat_table = table.reshape(-1, n_filters)  # (width * n_characters, n_filters)
        offsets = torch.arange(width, device=table.device) * n_characters  # (width,)
        chunk = CHUNK if table.device.type == "cpu" else 16 * CHUNK
        parts: list[torch.Tensor] = []
        for ids in groups:
            parts += ids.split(max(1, chunk // ((ids.size(1) - width + 1) * n_filters)))
        best, positions = [], []  # (n, n_filters) each
        for ids in parts:
            ngrams = ids.unfold(1, width, 1) + offsets  # (n, n_ngrams, width)
            sums = torch.nn.functional.embedding_bag(
                ngrams.reshape(-1, width), flat_table, mode="sum"
            ).view(*ngrams.shape[:2], n_filters)
            if ctx.needs_input_grad[0]:
                highest, position = _max_and_position(sums)
                positions.append(position)
            else:
                highest = sums.amax(1)
            best.append(highest)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(torch.cat(positions), *parts)
            ctx.shape, ctx.n_groups = table.shape, len(groups)
        return torch.cat(best)

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        positions, *parts = ctx.saved_tensors
        sizes = [ids.size(0) for ids in parts]
        width = ctx.shape[0]
        grad_table = grad.new_zeros(ctx.shape)
        for ids, position, part_grad in zip(parts, positions.split(sizes), grad.split(sizes)):
            shape = (width, *position.shape)
            # The characters of each filter's best n-gram: (width, n, n_filters)
            ngrams = ids.unfold(1, width, 1).permute(2, 0, 1)  # (width, n, n_ngrams)
            characters = ngrams.gather(2, position.expand(shape))
            grad_table.scatter_add_(1, characters, part_grad.expand(shape))
        return (grad_table, *[None] * ctx.n_groups)


def _max_and_position(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `sums.max(1)`, three times as fast on the CPU, where it overwrites `sums`."""
    if sums.device.type != "cpu":
        return sums.max(1)
    best, n_ngrams = sums.amax(1), sums.size(1)
    # The first position has the highest rank: (n_ngrams, 1)
    ranks = torch.arange(n_ngrams, 0, -1, device="cpu", dtype=sums.dtype).unsqueeze(1)
    losers = sums.sub_(best.unsqueeze(1)).sign_()  # -1, or 0 for the maximum
    highest = torch.add(ranks, losers, alpha=n_ngrams, out=losers).amax(1)  # (n, n_filters)
    # NaN gets any position.
    return best, torch.sub(n_ngrams, highest, out=highest).nan_to_num_().long()
