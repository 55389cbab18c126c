from typing import List, Sequence

import torch


class PackedBatch:
    """
    The one index of a batch of sequences of different lengths: which token stands where once the
    padding is left out.

    Packed order is time-major with the longest sequence first, as in torch's `PackedSequence`:
    first the first token of every sequence, then the second tokens of those that have one, and so
    on. The backward direction reads each sequence from its end, so both directions share
    `batch_sizes`, and only the place a packed row came from differs.

    # Parameters

    lengths : `Sequence[int]`
        Tokens of each sequence; sequences of length 0 are left out.
    timesteps : `int`
        Length of the padded time axis, at least the longest sequence's.
    device : `torch.device`, optional (default = the CPU)
        Where the indices are to live.
    """

    def __init__(
        self, lengths: Sequence[int], timesteps: int, device: torch.device = torch.device("cpu")
    ) -> None:
        lengths_tensor = torch.as_tensor(lengths, dtype=torch.long)  # (batch_size,)
        longest = int(lengths_tensor.max()) if len(lengths_tensor) else 0
        self.timesteps = timesteps
        self.lengths = lengths_tensor.to(device)
        sorted_lengths, order = lengths_tensor.sort(descending=True, stable=True)
        n_valid = int((lengths_tensor > 0).sum())
        sorted_lengths, order = sorted_lengths[:n_valid], order[:n_valid]
        steps = torch.arange(longest).unsqueeze(1)  # (longest, 1)
        present = steps < sorted_lengths  # (longest, n_valid)
        self.batch_sizes: List[int] = present.sum(1).tolist()
        # Rows of the batch in packed order, empty ones left out.
        self.order = order.to(device)  # (n_valid,)
        # Packed index of each sequence's last token, in the order of `self.order`.
        offsets = present.sum(1).cumsum(0) - present.sum(1)  # (longest,)
        last = offsets[sorted_lengths - 1] + torch.arange(n_valid)
        self.last = last.to(device)  # (n_valid,)
        # For each packed token: its sequence, and its place in it for either direction.
        row = order.expand(longest, n_valid)[present]
        self.row = row.to(device)  # (n_tokens,)
        self.forward_step = steps.expand(-1, n_valid)[present].to(device)  # (n_tokens,)
        backward_step = (sorted_lengths - 1 - steps)[present]
        self.backward_step = backward_step.to(device)  # (n_tokens,)
        # Where the backward direction finds its tokens among those packed for the forward one.
        rank = torch.arange(n_valid).expand(longest, n_valid)[present]
        self.reversal = (offsets[backward_step] + rank).to(device)  # (n_tokens,)

    @property
    def n_tokens(self) -> int:
        return self.row.size(0)

    def pack(self, tokens: torch.Tensor, backward: bool = False) -> torch.Tensor:
        """
        # Parameters

        tokens : `torch.Tensor`
            Shape `(batch_size, timesteps, ...)`.
        backward : `bool`, optional (default = `False`)
            Whether to read each sequence from its end.

        # Returns

        `torch.Tensor`
            Shape `(n_tokens, ...)`.
        """
        return tokens[self.row, self.backward_step if backward else self.forward_step]

    def unpack(self, packed: Sequence[torch.Tensor], strip: int = 0) -> torch.Tensor:
        """
        Sets the packed vectors of the directions side by side, back in their places.

        # Parameters

        packed : `Sequence[torch.Tensor]`
            For the forward and, if there is one, the backward direction, in its packed order:
            shape `(n_tokens, dim)` each.
        strip : `int`, optional (default = `0`)
            Tokens to leave out at either end of every sequence: 1 for sentence boundaries.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, max(timesteps - 2 * strip, 0), n_directions * dim)`, zero where
            there is no token.
        """
        batch_size, dim = self.lengths.size(0), packed[0].size(1)
        timesteps = max(self.timesteps - 2 * strip, 0)
        # (batch_size * timesteps * n_directions, dim)
        out = packed[0].new_zeros(batch_size * timesteps * len(packed), dim)
        for direction, (vectors, step) in enumerate(
            zip(packed, (self.forward_step, self.backward_step))
        ):
            row = self.row
            if strip:
                inner = (step >= strip) & (step < self.lengths[row] - strip)
                vectors, step, row = vectors[inner], step[inner] - strip, row[inner]
            place = (row * timesteps + step) * len(packed) + direction
            out = out.index_copy_(0, place, vectors)
        return out.view(batch_size, timesteps, len(packed) * dim)

    def mask(self, strip: int = 0) -> torch.Tensor:
        """
        # Returns

        `torch.BoolTensor`
            Shape `(batch_size, max(timesteps - 2 * strip, 0))`: where `unpack` has a token.
        """
        timesteps = max(self.timesteps - 2 * strip, 0)
        steps = torch.arange(timesteps, device=self.lengths.device)
        return steps < (self.lengths - 2 * strip).unsqueeze(1)
