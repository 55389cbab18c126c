"""
Steps of the recurrence as CUDA graphs: a GPU computes a step's small operators in less time than
the processor needs to call them one by one, and a graph is one call.

Rule: graphs depend on the shapes, types and clips of the layers, on the device and on the stream;
weights and states are copied to them at each call. One call at a time uses them, and another one in
the meantime does without. They are used if they gave the numbers of plain steps in less time when
they were first tried, and dropped once `_MAX_KEPT` others were used since, or when there are more
sequences than they were made for.
"""

import logging
import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import Dict, Hashable, Iterator, List, Optional, Sequence, Union

import torch

from allennlp_elmo_plugin.bilm.kernels.guarded import Guarded
from allennlp_elmo_plugin.bilm.kernels.model_call import lasting_tensors
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
    graphs = None
    if memories.device.type == "cuda" and len(batch_sizes) >= _FEW_STEPS:
        with torch.cuda.device(memories.device):
            graphs = _take(weights, clips, outputs, memories, batch_sizes)
    if graphs is None:
        yield Steps(weights, clips, outputs, memories)
        return
    try:
        graphs.start(weights, outputs, memories)
        yield graphs
    finally:
        graphs.in_use.release()


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
        self.in_use = threading.Lock()
        self.n_sequences = n_sequences
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
            with lasting_tensors():
                self._graphs[size] = self._capture(size)

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        from_inputs, output = list(self._from_inputs[:, :size]), self._output[:, :size]
        graph = torch.cuda.CUDAGraph()
        caller = torch.cuda.current_stream()
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            self._steps.previous = list(self._output)
            # Once before, since libraries take memory for themselves.
            self._steps.run(from_inputs, output)
            # What other threads do on the GPU meanwhile is none of its affair.
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                self._steps.run(from_inputs, output)
            finally:
                graph.capture_end()
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

    def wait(self) -> None:
        """
        Wait until the GPU has run the graphs, which may then be freed.
        """
        torch.cuda.synchronize(self._output.device)

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


def _take(
    weights: Sequence[StepWeights],
    clips: Clips,
    outputs: Sequence[torch.Tensor],
    memories: torch.Tensor,
    batch_sizes: List[int],
) -> Optional[StepGraphs]:
    """
    Return graphs that the caller has for its own until it releases `in_use`, or none.
    """
    if torch.cuda.is_current_stream_capturing():
        return None  # A graph can't be part of the one that is being captured.
    first, n_sequences = weights[0], memories.size(1)
    shapes = [None if each is None else each.shape for each in first]
    stream = torch.cuda.current_stream().cuda_stream
    kind = first.state.dtype, memories.dtype, memories.device, stream
    key = (len(weights), *shapes, clips, *kind)
    with _kept.lock:
        graphs = _kept.graphs.get(key)
        if key in _kept.graphs:
            _kept.graphs.move_to_end(key)
            if graphs is None or not graphs.in_use.acquire(blocking=False):
                return None
            if graphs.n_sequences < n_sequences:
                graphs = None
    try:
        if graphs is None:
            capacity = 1 << (n_sequences - 1).bit_length()
            graphs = StepGraphs(weights, clips, capacity, memories)
            graphs.in_use.acquire()
            is_new = True
        else:
            is_new = False
        graphs.prepare(batch_sizes)
        if is_new and not _are_faster(graphs, weights, clips, outputs, memories):
            graphs = None
    except (RuntimeError, TypeError) as error:
        logger.info("no CUDA graphs for steps of the recurrence: %s", error)
        graphs = None
    with _kept.lock:
        dropped = [_kept.graphs.pop(key, None)]
        _kept.graphs[key] = graphs
        while len(_kept.graphs) > _MAX_KEPT:
            dropped.append(_kept.graphs.popitem(last=False)[1])
    for each in dropped:
        if each is not None and each is not graphs:
            each.wait()
    return graphs


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
    tolerance = 0.05 if from_inputs.dtype == torch.bfloat16 else 1e-5
    first, second = results
    return graphed < plain and torch.allclose(first, second, rtol=tolerance, atol=tolerance)


class _Kept(Guarded):
    """
    Graphs by what they depend on, the one used last at the end; `None` if they were not worth it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graphs: OrderedDict[Hashable, Optional[StepGraphs]] = OrderedDict()


_kept = _Kept()
