"""The LSTM states that sentences start from, and that one batch leaves for the next."""

from typing import Literal

import torch

from allennlp_elmo_plugin.bilm.model_call import lasting_tensors

InitialState = Literal["carried", "settled", "zero"]
States = tuple[torch.Tensor, torch.Tensor]


class CarriedState:
    """
    The LSTM states that row i of a batch leaves for row i of the next, without a gradient. As in
    AllenNLP's stateful encoders, new rows start from zero. Rows that a batch lacks, or that have no
    token in it, keep their state.

    As in AllenNLP's `ElmoLstm`, `states` are outputs, shape `(n_layers, n_rows, n_directions *
    projection_dim)`, and cells, shape `(n_layers, n_rows, n_directions * dim)`; `None` stands for
    zeros. They are replaced, never changed in place.
    """

    def __init__(self, states: States | None = None) -> None:
        self.states = states

    def read(self, zeros: States) -> States:
        """Return a copy with the type and device of `zeros`, and at least as many rows as they."""
        states = self.states  # once: another thread may replace it
        if states is None:
            return zeros
        with lasting_tensors():
            n_rows = max(states[0].size(1), zeros[0].size(1))
            outputs, cells = (
                torch.nn.functional.pad(state.to(zero), (0, 0, 0, n_rows - state.size(1)))
                for state, zero in zip(states, zeros)
            )
        return outputs, cells

    def write(self, states: States | None) -> None:
        self.states = states

    def for_segments(self, batch_size: int) -> "CarriedState":
        """Return the state for several calls, each of which continues where the last one ended."""
        return self

    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Make all rows, or those in `mask`, shape `(batch_size,)`, start from zero."""
        if mask is None or self.states is None:
            self.states = None
            return
        with lasting_tensors():
            outputs, cells = self.states
            n_rows = outputs.size(1)
            mask = mask[:n_rows].to(outputs.device, torch.bool)
            is_reset = torch.nn.functional.pad(mask, (0, n_rows - mask.size(0))).unsqueeze(1)
            # A product would keep NaN and infinity.
            self.states = outputs.masked_fill(is_reset, 0), cells.masked_fill(is_reset, 0)

    def state_dict(self) -> States | None:
        """Return `states` on the CPU. To restore them, assign them to `states`."""
        return None if self.states is None else (self.states[0].cpu(), self.states[1].cpu())


class FixedState(CarriedState):
    """One state for all rows, which no batch changes: the first row of `carried`, or zeros."""

    def __init__(self, carried: CarriedState | None = None) -> None:
        super().__init__(None if carried is None else carried.states)

    def for_segments(self, batch_size: int) -> CarriedState:
        if self.states is None:
            return CarriedState()
        outputs, cells = (state[:, :1].expand(-1, batch_size, -1) for state in self.states)
        return CarriedState((outputs, cells))

    def read(self, zeros: States) -> States:
        return self.for_segments(zeros[0].size(1)).read(zeros)

    def write(self, states: States | None) -> None:
        pass
