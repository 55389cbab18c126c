"""The index by which a batch is computed without its padding."""

from typing import List, Sequence

import numpy as np
import torch


class PackedBatch:
    """
    Where each token of a batch of sequences stands once the padding is left out.

    Packed order is that of torch's `PackedSequence`: the first token of every sequence, the longest
    first, then the second tokens of those that have one, and so on. The backward direction reads
    each sequence from its end, so both directions share `batch_sizes`.

    # Parameters

    lengths : `Sequence[int]`
        Tokens of each sequence; sequences of length 0 are left out.
    timesteps : `int`
        Length of the padded time axis, at least the longest sequence's.
    device : `torch.device`, optional (default = the CPU)
        Where the indices are.
    """

    def __init__(
        self, lengths: Sequence[int], timesteps: int, device: torch.device = torch.device("cpu")
    ) -> None:
        self.batch_size = len(lengths)
        self.timesteps = timesteps
        counts = np.asarray(lengths, dtype=np.int64)  # (batch_size,)
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]  # (n_sequences,)
        sorted_counts = counts[order]  # (n_sequences,)
        present = np.arange(max(lengths, default=0))[:, None] < sorted_counts
        sizes = present.sum(1)  # (longest,)
        self.batch_sizes: List[int] = sizes.tolist()
        offsets = sizes.cumsum() - sizes  # (longest,)
        forward_step, rank = present.nonzero()  # (n_tokens,) each
        backward_step = sorted_counts[rank] - 1 - forward_step  # (n_tokens,)
        parts = {
            "lengths": counts,  # (batch_size,)
            # Rows of the batch in packed order, empty ones left out
            "order": order,  # (n_sequences,)
            # Packed index of each sequence's last token, in the order of `order`
            "last": offsets[sorted_counts - 1] + np.arange(len(order)),  # (n_sequences,)
            # For each packed token: its sequence, and its place in it for either direction
            "row": order[rank],  # (n_tokens,)
            "forward_step": forward_step,  # (n_tokens,)
            "backward_step": backward_step,  # (n_tokens,)
            # Where the backward direction finds its tokens among those packed for the forward one
            "reversal": offsets[backward_step] + rank,  # (n_tokens,)
        }
        # One copy to the device
        index = torch.from_numpy(np.concatenate(list(parts.values()))).to(device)
        split = index.split([len(part) for part in parts.values()])
        self.lengths, self.order, self.last, self.row, *steps = split
        self.forward_step, self.backward_step, self.reversal = steps

    @property
    def n_tokens(self) -> int:
        return self.row.size(0)

    def pack(self, tokens: torch.Tensor) -> torch.Tensor:
        """
        From shape `(batch_size, timesteps, ...)` to `(n_tokens, ...)`, for the forward direction.
        """
        return tokens[self.row, self.forward_step]

    def unpack(self, packed: Sequence[torch.Tensor], strip: int = 0) -> torch.Tensor:
        """
        Concatenate the packed vectors of the directions, each back in its place.

        # Parameters

        packed : `Sequence[torch.Tensor]`
            For the forward and, if there is one, the backward direction: shape `(n_tokens, dim)`.
        strip : `int`, optional (default = `0`)
            Tokens to leave out at either end of every sequence: 1 for sentence boundaries.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, max(timesteps - 2 * strip, 0), n_directions * dim)`, zero where
            there is no token.
        """
        dim = packed[0].size(1)
        timesteps = max(self.timesteps - 2 * strip, 0)
        n_places = self.batch_size * timesteps * len(packed)
        # One place more, for what is left out: (n_places + 1, dim)
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
        """
        Return where `unpack` has a token, shape `(batch_size, max(timesteps - 2 * strip, 0))`.
        """
        timesteps = max(self.timesteps - 2 * strip, 0)
        steps = torch.arange(timesteps, device=self.lengths.device)
        return steps < (self.lengths - 2 * strip).unsqueeze(1)
