"""
Steps of the recurrence of LSTM layers, without a gradient.
"""

from typing import NamedTuple, Optional, Sequence

import torch

from allennlp_elmo_plugin.bilm.kernels.gradients import tanh
from allennlp_elmo_plugin.bilm.kernels.matrix_product import PreparedMatrix


class StepWeights(NamedTuple):
    """
    The weights of a layer that a step multiplies with. In `state`, those of the candidate are
    doubled; see `tanh`.
    """

    state: PreparedMatrix
    projection: Optional[PreparedMatrix]


class Clips(NamedTuple):
    """
    The bounds of a layer's memory and output.
    """

    memory: Optional[float]
    output: Optional[float]


class Steps:
    """
    Layers of one shape, such as those of two directions, that go step by step together. Apart from
    the matrix products, this needs as many operators as one layer. With weights in bfloat16,
    memories are float32.

    # Parameters

    weights : `Sequence[StepWeights]`
        Those of each layer.
    clips : `Clips`
        Those of all layers.
    outputs : `Sequence[torch.Tensor]`
        The output of each layer before the first step, shape `(n_sequences, projection_dim)`, of
        the type of the weights.
    memories : `torch.Tensor`
        The memories before the first step, shape `(n_layers, n_sequences, dim)`. Each step
        overwrites those of its sequences.
    """

    def __init__(
        self,
        weights: Sequence[StepWeights],
        clips: Clips,
        outputs: Sequence[torch.Tensor],
        memories: torch.Tensor,
    ) -> None:
        self.weights = weights
        self.clips = clips
        self.memories = memories
        self.previous = outputs
        n_layers, n_sequences, dim = memories.shape
        self._all_gates = memories.new_empty(n_layers, n_sequences, 4 * dim)
        self._workspace = empty_apart(memories, memories.dtype, n_layers, n_sequences, dim)
        self._size = 0

    def _resize(self, size: int) -> None:
        self._size = size
        self.previous = [output[:size] for output in self.previous]  # (size, projection_dim) each
        gates = self._all_gates[:, :size]  # (n_layers, size, 4 * dim)
        self._gates_of_layers = list(gates)
        # (n_layers, size, dim) each
        self._in_gate, self._forget_gate, self._candidate, self._out_gate = gates.chunk(4, 2)
        # (n_layers, size, dim) each
        self._memory, self._scratch = self.memories[:, :size], self._workspace[:, :size]

    def run(self, from_inputs: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        """
        Run the next step, which has the first sequences of the step before.

        # Parameters

        from_inputs : `Sequence[torch.Tensor]`
            The inputs' part of the gates of each layer, shape `(size, 4 * dim)`.
        output : `torch.Tensor`
            Where to write the outputs, shape `(n_layers, size, projection_dim)`. The next step
            reads them there.
        """
        if output.size(1) != self._size:
            self._resize(output.size(1))
        memory = self._memory
        for layer, previous, rows, gates in zip(
            self.weights, self.previous, from_inputs, self._gates_of_layers
        ):
            raw = layer.state.product(previous, add=rows)  # (size, 4 * dim)
            torch.sigmoid(raw.to(gates.dtype), out=gates)
        memory.mul_(self._forget_gate).addcmul_(self._in_gate, self._candidate, value=2)
        memory.sub_(self._in_gate)
        if self.clips.memory is not None:
            memory.clamp_(-self.clips.memory, self.clips.memory)
        # (n_layers, size, dim)
        hidden = tanh(memory, out=self._scratch).mul_(self._out_gate).to(output.dtype)
        self.previous = list(output)
        for layer, row, projected in zip(self.weights, hidden, self.previous):
            projection = layer.projection
            projected.copy_(row if projection is None else projection.product(row))
        if self.clips.output is not None and self.weights[0].projection is not None:
            output.clamp_(-self.clips.output, self.clips.output)


def empty_apart(
    like: torch.Tensor, dtype: torch.dtype, n_layers: int, n_rows: int, dim: int
) -> torch.Tensor:
    """
    Return a tensor without values, shape `(n_layers, n_rows, dim)`, on the device of `like`. To the
    bit, what is computed in a layer's part doesn't depend on the other parts: torch rounds a
    sigmoid at the end of a piece of memory in another way than inside it, and MKL's products round
    by where their rows begin.
    """
    n_values = n_rows * dim
    size = (n_values // 64 + 1) * 64  # of a part: aligned, with a gap behind it
    parts = like.new_empty(n_layers, size, dtype=dtype)
    return parts[:, :n_values].view(n_layers, n_rows, dim)
