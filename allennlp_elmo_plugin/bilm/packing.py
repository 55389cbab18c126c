"""Indexing that leaves the padding of a batch out of the computation."""

from collections.abc import Sequence

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.model_call import copy_to


class PackedBatch:
    """
    The place of each token of a batch of sequences once the padding is left out.

    The order is that of torch's `PackedSequence`: the first token of every sequence, longest
    sequence first, then the second tokens of those that have one, and so on. The backward direction
    reads each sequence from its end, so both directions share `batch_sizes`. Sequences of length 0
    are left out.
    """

    def __init__(
        self, lengths: Sequence[int], timesteps: int, device: torch.device = torch.device("cpu")
    ) -> None:
        self.batch_size = len(lengths)
        self.timesteps = timesteps
        self.lengths_on_host = list(lengths)
        counts = np.asarray(lengths, dtype=np.int64)  # (batch_size,)
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]  # (n_sequences,)
        sorted_counts = counts[order]  # (n_sequences,)
        present = np.arange(max(lengths, default=0))[:, None] < sorted_counts
        sizes = present.sum(1)  # (longest,)
        self.batch_sizes: list[int] = sizes.tolist()
        offsets = sizes.cumsum() - sizes  # (longest,)
        forward_step, rank = present.nonzero()  # (n_tokens,) each
        backward_step = sorted_counts[rank] - 1 - forward_step  # (n_tokens,)
        parts = (
            counts,  # (batch_size,)
            # The rows of the batch, longest first, and the packed index of each one's last token
            order,  # (n_sequences,)
            offsets[sorted_counts - 1] + np.arange(len(order)),  # (n_sequences,)
            # The sequence of each packed token, and its place there in either direction
            order[rank],  # (n_tokens,)
            forward_step,  # (n_tokens,)
            backward_step,  # (n_tokens,)
            # Where the tokens of the backward direction stand among those of the forward one
            offsets[backward_step] + rank,  # (n_tokens,)
            # Where each step begins, after a row for each sequence's initial state, and the end
            np.cumsum([0, len(order), *sizes]),  # (longest + 2,)
        )
        # One copy to the device
        index = copy_to(torch.from_numpy(np.concatenate(parts)), device)
        split = index.split([len(part) for part in parts])
        self.lengths, self.order, self.last, self.row = split[:4]
        self.forward_step, self.backward_step, self.reversal = split[4:7]
        self.starts = split[7].int()

    @property
    def n_tokens(self) -> int:
        return self.row.size(0)

    def pack(self, tokens: torch.Tensor) -> torch.Tensor:
        """From shape `(batch_size, timesteps, ...)` to `(n_tokens, ...)`, in forward order."""
        return tokens[self.row, self.forward_step]

    def unpack(self, packed: Sequence[torch.Tensor], strip: int = 0) -> torch.Tensor:
        """
        Concatenate the packed vectors of each direction, shape `(n_tokens, dim)`, leaving out
        `strip` tokens at both ends of every sequence. Return shape `(batch_size, max(timesteps - 2
        * strip, 0), n_directions * dim)`, with zeros where there is no token.
        """
        dim = packed[0].size(1)
        timesteps = max(self.timesteps - 2 * strip, 0)
        n_places = self.batch_size * timesteps * len(packed)
        # The last row takes what is left out: (n_places + 1, dim)
        out = packed[0].new_zeros(n_places + 1, dim)
        steps = self.forward_step, self.backward_step
        for direction, (vectors, step) in enumerate(zip(packed, steps)):
            place = (self.row * timesteps + step - strip) * len(packed) + direction  # (n_tokens,)
            if strip:
                inner = (step >= strip) & (step < self.lengths[self.row] - strip)  # (n_tokens,)
                place = place.where(inner, place.new_full((), n_places))
            out = out.index_copy_(0, place, vectors)
        return out[:n_places].view(self.batch_size, timesteps, len(packed) * dim)

    def mask(self, strip: int = 0) -> torch.Tensor:
        """Return where the result of `unpack` has a token, shape `(batch_size, timesteps)`."""
        timesteps = max(self.timesteps - 2 * strip, 0)
        steps = torch.arange(timesteps, device=self.lengths.device)
        return steps < (self.lengths - 2 * strip).unsqueeze(1)
