"""
Steps of the recurrence as CUDA graphs: a GPU computes a step's small operators in less time than
the processor needs to call them one by one, and a graph is one call.

Rule: graphs depend on the shapes, types and clips of the layers, on the device and on the precision
of its products; weights and states are copied to them at each call. One call at a time uses them,
and another one in the meantime does without. On the GPU, a call waits for the one before, which may
have had another stream. Graphs are used if they gave the numbers of plain steps in less time when
they were made. They are made again for more sequences, and dropped once `_MAX_KEPT` others were
used since on their device.
"""

import logging
import math
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import Dict, Hashable, Iterator, List, Optional, Sequence, Union

import torch

from allennlp_elmo_plugin.bilm.kernels.locked_object import LockedObject
from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors, without_autocast
from allennlp_elmo_plugin.bilm.lstm_steps import Clips, Steps, StepWeights

logger = logging.getLogger(__name__)

# Fewer steps are not worth the copies of the weights.
_FEW_STEPS = 8
_MAX_KEPT = 4
_TRIED_STEPS = 20


@contextmanager
def steps_for(
    weights: Sequence[StepWeights],
    clips: Clips,
    outputs: Sequence[torch.Tensor],
    memories: torch.Tensor,
    batch_sizes: List[int],
) -> Iterator[Union[Steps, "StepGraphs"]]:
    """
    Give what runs steps of these sizes: `Steps` with these arguments, or on a GPU `StepGraphs`.
    """
    if not _may_be_graphs(memories, batch_sizes):
        yield Steps(weights, clips, outputs, memories)
        return
    with torch.cuda.device(memories.device):
        kind = _kept.take(_key(weights, clips, memories), memories.device)
        graphs = None
        try:
            if kind is not None:
                graphs = kind.ready(weights, clips, outputs, memories, batch_sizes)
            if graphs is None:
                yield Steps(weights, clips, outputs, memories)
            else:
                graphs.start(weights, outputs, memories)
                yield graphs
        finally:
            if graphs is not None:
                graphs.done.record()
            if kind is not None:
                _kept.put_back(kind)


def _may_be_graphs(memories: torch.Tensor, batch_sizes: List[int]) -> bool:
    return (
        memories.device.type == "cuda"
        and len(batch_sizes) >= _FEW_STEPS
        # Not a stand-in without values, such as those of torch's `FakeTensorMode`.
        and type(memories) is torch.Tensor
        # A graph can't be part of the one that is being captured.
        and not torch.cuda.is_current_stream_capturing()
        # Which way is faster may change from run to run, and the last digits with it.
        and not torch.are_deterministic_algorithms_enabled()
    )


class StepGraphs:
    """
    What `Steps` does, on a GPU, with one CUDA graph for each number of sequences. Numbers are
    rounded up, to have few graphs; what is computed for too many sequences isn't used.

    # Parameters

    weights, clips
        See `Steps`.
    n_sequences : `int`
        How many sequences there can be, a power of two.
    like : `torch.Tensor`
        Memories of other steps, for their type and device.

    # Raises

    RuntimeError
        If there is too little memory.
    """

    def __init__(
        self,
        weights: Sequence[StepWeights],
        clips: Clips,
        n_sequences: int,
        like: torch.Tensor,
    ) -> None:
        self.n_sequences = n_sequences
        # Recorded after each call.
        self.done = torch.cuda.Event()
        n_layers, (projection_dim, n_gates) = len(weights), weights[0].state.shape
        dtype = weights[0].state.dtype
        with lasting_tensors():
            self._weights = [
                StepWeights(
                    layer.state.clone(),
                    None if layer.projection is None else layer.projection.clone(),
                )
                for layer in weights
            ]
            # (n_layers, n_sequences, n_gates)
            self._from_inputs = like.new_zeros(n_layers, n_sequences, n_gates, dtype=dtype)
            # (n_layers, n_sequences, projection_dim)
            self._output = like.new_zeros(n_layers, n_sequences, projection_dim, dtype=dtype)
            # (n_layers, n_sequences, dim)
            self._memories = like.new_zeros(n_layers, n_sequences, n_gates // 4)
            self._steps = Steps(self._weights, clips, list(self._output), self._memories)
        self._graphs: Dict[int, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()
        # Of the sequences that have ended, in this call.
        self._finals = self._memories
        self._size = n_sequences

    def prepare(self, batch_sizes: Sequence[int]) -> None:
        """
        Capture the graphs that steps of these sizes need.

        # Raises

        RuntimeError, TypeError
            If a step can't be captured, also with torch before 2.1.
        """
        for size in {_rounded(size) for size in batch_sizes} - set(self._graphs):
            with lasting_tensors(), without_autocast():
                self._graphs[size] = self._capture(size)

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        from_inputs, output = list(self._from_inputs[:, :size]), self._output[:, :size]
        graph = torch.cuda.CUDAGraph()
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        try:
            with torch.cuda.stream(self._stream):
                self._steps.previous = [each[:size] for each in self._output]
                # Once before, since libraries take memory for themselves.
                self._steps.run(from_inputs, output)
                # Other threads may use the GPU meanwhile.
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    self._steps.run(from_inputs, output)
                except BaseException:
                    with suppress(RuntimeError):  # which would hide this one, such as an interrupt
                        graph.capture_end()
                    raise
                graph.capture_end()
        finally:
            # Also after an error: what it has written to is then freed.
            caller.wait_stream(self._stream)
        return graph

    def start(
        self,
        weights: Sequence[StepWeights],
        outputs: Sequence[torch.Tensor],
        memories: torch.Tensor,
    ) -> None:
        """
        Go on from these states with these weights; see `Steps`.
        """
        for mine, theirs in zip(self._weights, weights):
            mine.state.copy_(theirs.state)
            if mine.projection is not None and theirs.projection is not None:
                mine.projection.copy_(theirs.projection)
        self._finals, self._size = memories, memories.size(1)
        self._memories[:, : self._size].copy_(memories)
        for output, before in zip(self._output, outputs):
            output[: self._size].copy_(before)

    def run(self, from_inputs: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        """
        See `Steps.run`.
        """
        size = output.size(1)
        if size < self._size:
            ended = slice(size, self._size)
            self._finals[:, ended].copy_(self._memories[:, ended])
            self._size = size
        for mine, rows in zip(self._from_inputs, from_inputs):
            mine[:size].copy_(rows)
        self._graphs[_rounded(size)].replay()
        output.copy_(self._output[:, :size])

    @property
    def memories(self) -> torch.Tensor:
        """
        The memories after the last step of each sequence, shape `(n_layers, n_sequences, dim)`.
        """
        self._finals[:, : self._size].copy_(self._memories[:, : self._size])
        return self._finals


def _rounded(size: int) -> int:
    """
    Return the size of the graph for a step: a number of at most three bits, and zeros.
    """
    unit = 1 << max(0, size.bit_length() - 3)
    return -(-size // unit) * unit


class _Kind:
    """
    What is known about graphs for steps of one kind: the graphs, if there are any, and how many
    sequences are too many for them. One call at a time has it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graphs: Optional[StepGraphs] = None
        self.too_many = math.inf
        self.in_use = False

    def ready(
        self,
        weights: Sequence[StepWeights],
        clips: Clips,
        outputs: Sequence[torch.Tensor],
        memories: torch.Tensor,
        batch_sizes: List[int],
    ) -> Optional[StepGraphs]:
        """
        Return graphs for these steps, or none if plain steps are better.
        """
        n_sequences, graphs = memories.size(1), self.graphs
        capacity = 1 << (n_sequences - 1).bit_length()
        is_new = graphs is None or n_sequences > graphs.n_sequences
        if is_new and capacity >= self.too_many:
            return None
        if graphs is not None:
            torch.cuda.current_stream().wait_event(graphs.done)
        try:
            if graphs is None or is_new:
                graphs = StepGraphs(weights, clips, capacity, memories)
            graphs.prepare(batch_sizes)
            if not is_new:
                return graphs
            if _are_faster(graphs, weights, clips, outputs, memories):
                self.drop()
                self.graphs = graphs
                return graphs
        except (RuntimeError, TypeError) as error:
            logger.info("no CUDA graphs for steps of the recurrence: %s", error)
            if not is_new:
                self.drop()
        self.too_many = capacity
        return None

    def drop(self) -> None:
        """
        Free the graphs, once the GPU has run them.
        """
        if self.graphs is not None:
            self.graphs.done.synchronize()
            self.graphs = None


def _key(weights: Sequence[StepWeights], clips: Clips, memories: torch.Tensor) -> Hashable:
    """
    Return what graphs depend on.
    """
    shapes = [None if each is None else each.shape for each in weights[0]]
    dtypes = weights[0].state.dtype, memories.dtype
    settings = torch.backends.cuda.matmul
    try:
        precision = settings.fp32_precision
    except (AttributeError, AssertionError):  # torch before 2.9
        precision = settings.allow_tf32
    return len(weights), *shapes, clips, *dtypes, precision, memories.device


def _are_faster(
    graphs: StepGraphs,
    weights: Sequence[StepWeights],
    clips: Clips,
    outputs: Sequence[torch.Tensor],
    memories: torch.Tensor,
) -> bool:
    """
    Return whether graphs give the numbers of plain steps from these states, in less time.
    """
    n_layers, n_sequences, dim = memories.shape
    from_inputs = torch.linspace(  # (n_layers, n_sequences, 4 * dim)
        -2, 2, 4 * memories.numel(), dtype=weights[0].state.dtype, device=memories.device
    ).view(n_layers, n_sequences, 4 * dim)
    results: List[torch.Tensor] = []
    seconds: List[float] = []
    for _ in range(2):  # The first time, libraries prepare themselves.
        results.clear()
        seconds.clear()
        graphs.start(weights, outputs, memories.clone())
        for steps in Steps(weights, clips, outputs, memories.clone()), graphs:
            # (n_layers, n_sequences, projection_dim)
            output = torch.stack(list(outputs))
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(_TRIED_STEPS):
                steps.run(list(from_inputs), output)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            results.append(output.float())
    plain, graphed = (each / _TRIED_STEPS * 1e6 for each in seconds)
    logger.info(
        "a step of %d sequences takes %.0f microseconds as a CUDA graph, %.0f without",
        n_sequences,
        graphed,
        plain,
    )
    # A GPU adds up in another order for another number of rows.
    tolerance = 1e-3 if from_inputs.element_size() >= 4 else 0.05
    first, second = results
    return graphed < plain and torch.allclose(first, second, rtol=tolerance, atol=tolerance)


class _Kept(LockedObject):
    """
    Kinds of steps by their keys, the one used last at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: OrderedDict[Hashable, _Kind] = OrderedDict()

    def take(self, key: Hashable, device: torch.device) -> Optional[_Kind]:
        """
        Return a kind of steps that is the caller's alone until it puts it back, or none if another
        call has it.
        """
        with self.lock:
            kind = self.kinds.setdefault(key, _Kind(device))
            self.kinds.move_to_end(key)
            if kind.in_use:
                return None
            kind.in_use = True
            return kind

    def put_back(self, kind: _Kind) -> None:
        """
        See `take`.
        """
        with self.lock:
            kind.in_use = False
            have_graphs = [
                key
                for key, each in self.kinds.items()
                if each.graphs is not None and each.device == kind.device
            ]
            dropped = [
                self.kinds.pop(key)
                for key in have_graphs[:-_MAX_KEPT]
                if not self.kinds[key].in_use
            ]
        for each in dropped:
            each.drop()


_kept = _Kept()
