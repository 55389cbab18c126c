"""
The LSTM states that sentences start from, and that a batch leaves for the next.
"""

import copy
import threading
from contextlib import contextmanager
from typing import Any, Dict, Hashable, Iterator, Optional

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors
from allennlp_elmo_plugin.bilm.lstm import LstmState
from allennlp_elmo_plugin.bilm.packing import PackedBatch


class CarriedState:
    """
    The LSTM states that row i of a batch leaves for row i of the next: outputs and memories of
    every layer and direction, without gradient.

    Rows behave as in AllenNLP's stateful encoders: a batch with more rows than any before starts
    the new ones from zero, one with fewer leaves the others waiting, and a row with no token keeps
    its state. In bilm-tf's training, where batches have one size, that is its carried state.
    """

    def __init__(self) -> None:
        # For (direction, layer): outputs (n_rows, projection_dim) and memories (n_rows, dim).
        self._states: Dict[Hashable, LstmState] = {}
        # A thread that holds it may acquire it again.
        self.lock = threading.RLock()

    def __getstate__(self) -> Dict[str, Any]:
        return {"_states": dict(self._states)}

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
            states = copy.copy(self)
            yield states
            self._states = states._states

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
                self._states = {}
                return
            for output, _ in self._states.values():
                if mask.size(0) != output.size(0):
                    raise ValueError(
                        f"a mask of {mask.size(0)} rows for the states of {output.size(0)}"
                    )
            self.reset_batch(mask)

    def reset_batch(self, mask: torch.Tensor) -> None:
        """
        Start rows of the next batch from zero: those in `mask`, shape `(batch_size,)`. Rows that
        the batch doesn't have stay as they are.
        """
        with self.lock, lasting_tensors():
            states: Dict[Hashable, LstmState] = {}
            for key, (output, memory) in self._states.items():
                mask = mask.to(output.device, torch.bool)  # once: all states are on one device
                is_reset = mask.new_zeros(output.size(0), 1)
                n_rows = min(len(is_reset), len(mask))
                is_reset[:n_rows, 0] = mask[:n_rows]
                # A product would keep NaN and infinity.
                states[key] = (output.masked_fill(is_reset, 0), memory.masked_fill(is_reset, 0))
            self._states = states

    def state_dict(self) -> Dict[Hashable, LstmState]:
        """
        Return the states by (direction, layer), on the CPU: outputs, shape `(n_rows,
        projection_dim)`, and memories, shape `(n_rows, dim)`.
        """
        return {key: (state[0].cpu(), state[1].cpu()) for key, state in self._states.items()}

    def load_state_dict(self, states: Dict[Hashable, LstmState]) -> None:
        """
        Restore what `state_dict` returned, whatever the device of the model.
        """
        self._states = dict(states)

    def row(self, index: int) -> torch.Tensor:
        """
        Return all outputs and memories of a row, one after the other.
        """
        return torch.cat([each[index] for state in self._states.values() for each in state])

    def read(self, key: Hashable, packing: PackedBatch, zero: LstmState) -> LstmState:
        """
        Return the state of (direction, layer) for the batch's rows that have a token, of the
        shapes, type and device of `zero`: `(n_sequences, projection_dim)`, `(n_sequences, dim)`.
        """
        if key not in self._states:
            return zero
        n_known = self._states[key][0].size(0)
        if packing.batch_size <= n_known:
            return tuple(  # type: ignore[return-value]
                kept.to(empty).index_select(0, packing.order)
                for kept, empty in zip(self._states[key], zero)
            )
        known = (packing.order < n_known).unsqueeze(1)  # (n_sequences, 1)
        rows = packing.order.clamp(max=n_known - 1)  # (n_sequences,)
        return tuple(  # type: ignore[return-value]
            torch.where(known, kept.to(empty).index_select(0, rows), empty)
            for kept, empty in zip(self._states[key], zero)
        )

    def write(self, key: Hashable, packing: PackedBatch, state: LstmState) -> None:
        """
        Keep the state of the batch's rows that have a token.
        """
        kept = self._states.get(key)
        n_known = 0 if kept is None else kept[0].size(0)
        updated = []
        with lasting_tensors():
            for index, values in enumerate(state):
                table = values.new_zeros(max(n_known, packing.batch_size), values.size(1))
                if kept is not None:
                    table[:n_known] = kept[index]
                updated.append(table.index_copy_(0, packing.order, values.detach()))
        self._states[key] = (updated[0], updated[1])


class FixedState(CarriedState):
    """
    One state that every row of every batch starts from, and that no batch changes.

    # Parameters

    carried : `CarriedState`, optional (default = zeros)
        Its first row is the state.
    """

    def __init__(self, carried: Optional[CarriedState] = None) -> None:
        super().__init__()
        for key, (output, memory) in ({} if carried is None else carried._states).items():
            self._states[key] = output[:1].clone(), memory[:1].clone()

    @contextmanager
    def update(self) -> Iterator[CarriedState]:
        """
        Yield this state. No call waits for another.
        """
        yield self

    def for_segments(self, batch_size: int) -> CarriedState:
        carried = CarriedState()
        for key, (output, memory) in self._states.items():
            carried._states[key] = output.expand(batch_size, -1), memory.expand(batch_size, -1)
        return carried

    def read(self, key: Hashable, packing: PackedBatch, zero: LstmState) -> LstmState:
        if key not in self._states:
            return zero
        output, memory = self._states[key]
        return output.to(zero[0]).expand_as(zero[0]), memory.to(zero[1]).expand_as(zero[1])

    def write(self, key: Hashable, packing: PackedBatch, state: LstmState) -> None:
        """
        Do nothing.
        """


ZERO_STATE = FixedState()
