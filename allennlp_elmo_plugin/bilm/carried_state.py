"""
The LSTM states that sentences start from, and that a batch leaves for the next.
"""

import copy
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Tuple

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors

States = Tuple[torch.Tensor, torch.Tensor]


class CarriedState:
    """
    The LSTM states that row i of a batch leaves for row i of the next, without gradient.

    Rows behave as in AllenNLP's stateful encoders: a batch with more rows than any before starts
    the new ones from zero, one with fewer leaves the others waiting, and a row with no token keeps
    its state. In bilm-tf's training, where batches have one size, that is its carried state.

    # Parameters

    states : `Tuple[torch.Tensor, torch.Tensor]`, optional (default = zeros)
        As in AllenNLP's `ElmoLstm`: outputs, shape `(n_layers, n_rows, n_directions *
        projection_dim)`, and cells, shape `(n_layers, n_rows, n_directions * dim)`.
    """

    def __init__(self, states: Optional[States] = None) -> None:
        self.states = states
        # A thread that holds it may acquire it again.
        self.lock = threading.RLock()

    def __getstate__(self) -> Dict[str, Any]:
        return {"states": self.states}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        # A copy has another lock.
        vars(self).update(state, lock=threading.RLock())

    @contextmanager
    def update(self) -> Iterator["CarriedState"]:
        """
        Yield a copy that replaces these states at the end, unless there is an error. Other threads
        wait.
        """
        with self.lock:
            copied = copy.copy(self)
            yield copied
            self.states = copied.states

    def read(self, zeros: States) -> States:
        """
        Return the states in memory of their own, with the rows of `zeros` at least, and of its type
        and device.
        """
        if self.states is None:
            return zeros
        with lasting_tensors():
            n_rows = max(self.states[0].size(1), zeros[0].size(1))
            outputs, cells = (
                torch.nn.functional.pad(kept.to(empty), (0, 0, 0, n_rows - kept.size(1)))
                for kept, empty in zip(self.states, zeros)
            )
        return outputs, cells

    def write(self, states: States) -> None:
        """
        Keep these states.
        """
        self.states = states

    def for_segments(self, batch_size: int) -> "CarriedState":
        """
        Return the state for a batch that several calls run, each from where the last one ended.
        """
        return self

    def reset(self, mask: Optional[torch.Tensor] = None) -> None:
        """
        Start again from zero: all rows, or those in `mask`, shape `(n_rows,)`.
        """
        with self.lock:
            if mask is None:
                self.states = None
                return
            if self.states is not None and mask.size(0) != self.states[0].size(1):
                n_rows = self.states[0].size(1)
                raise ValueError(f"a mask of {mask.size(0)} rows for the states of {n_rows}")
            self.reset_batch(mask)

    def reset_batch(self, mask: torch.Tensor) -> None:
        """
        Start rows of the next batch from zero: those in `mask`, shape `(batch_size,)`. Rows that
        the batch doesn't have stay as they are.
        """
        with self.lock, lasting_tensors():
            if self.states is None:
                return
            outputs, cells = self.states
            n_rows = outputs.size(1)
            mask = mask[:n_rows].to(outputs.device, torch.bool)
            is_reset = torch.nn.functional.pad(mask, (0, n_rows - mask.size(0))).unsqueeze(1)
            # A product would keep NaN and infinity.
            self.states = outputs.masked_fill(is_reset, 0), cells.masked_fill(is_reset, 0)

    def state_dict(self) -> Optional[States]:
        """
        Return the states, on the CPU.
        """
        return None if self.states is None else (self.states[0].cpu(), self.states[1].cpu())

    def load_state_dict(self, states: Optional[States]) -> None:
        """
        Restore what `state_dict` returned, whatever the device of the model.
        """
        if isinstance(states, dict):  # an earlier version's, by direction and layer
            directions = sorted({direction for direction, _ in states}, reverse=True)
            layers = range(len(states) // max(len(directions), 1))
            outputs, cells = (
                [torch.cat([states[each, k][i] for each in directions], 1) for k in layers]
                for i in range(2)
            )
            states = (torch.stack(outputs), torch.stack(cells)) if outputs else None
        self.states = states

    def row(self, index: int) -> torch.Tensor:
        """
        Return all outputs and cells of a row, one after the other.
        """
        assert self.states is not None
        return torch.cat([each[:, index].flatten() for each in self.states])


class FixedState(CarriedState):
    """
    One state that every row of every batch starts from, and that no batch changes.

    # Parameters

    carried : `CarriedState`, optional (default = zeros)
        Its first row is the state.
    """

    def __init__(self, carried: Optional[CarriedState] = None) -> None:
        super().__init__(None if carried is None else carried.states)

    @contextmanager
    def update(self) -> Iterator[CarriedState]:
        """
        Yield this state. No call waits for another.
        """
        yield self

    def for_segments(self, batch_size: int) -> CarriedState:
        if self.states is None:
            return CarriedState()
        outputs, cells = (each[:, :1].expand(-1, batch_size, -1) for each in self.states)
        return CarriedState((outputs, cells))

    def read(self, zeros: States) -> States:
        return self.for_segments(zeros[0].size(1)).read(zeros)

    def write(self, states: States) -> None:
        """
        Do nothing.
        """
