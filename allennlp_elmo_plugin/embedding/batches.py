"""Layers of batches of sentences as numpy arrays: what all ways to embed sentences share."""

import copy
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.arguments import check_at_least
from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences
from allennlp_elmo_plugin.bilm.model_call import copy_to, lasting_tensors, model_call
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.progress import step_bar

logger = logging.getLogger(__name__)

Layers = Literal["all", "top", "average", "concatenated"] | int | Sequence[int]
Pooling = Literal["mean", "max"]
POOLINGS: dict[str, Callable[..., np.ndarray]] = {"mean": np.mean, "max": np.max}
"""How the vectors of a sentence's words become one."""


def pool(layers: np.ndarray, pooling: str) -> np.ndarray:
    """Return layers, shape `([layers,] tokens, dim)`, without the tokens; without any, zeros."""
    if not layers.size:
        return np.zeros((*layers.shape[:-2], layers.shape[-1]), layers.dtype)
    return POOLINGS[pooling](layers, axis=-2)


class Selection(NamedTuple):
    """The layers to return, `None` for their mean, in arrays of shape `(*axes, tokens, dim)`."""

    layers: list[int] | None
    axes: list[int]
    dim: int


def select_layers(bilm: ElmoBiLm, output_format: Layers) -> Selection:
    """Return which layers `ElmoEmbedder.embed_batch` returns for an `output_format`."""
    every, dim = list(range(bilm.num_layers)), bilm.get_output_dim()
    named: dict[Any, Selection] = {
        "all": Selection(every, [len(every)], dim),
        "top": Selection(every[-1:], [], dim),
        "average": Selection(None, [], dim),
        "concatenated": Selection(every, [], len(every) * dim),
    }
    asked: Any = output_format
    is_one = isinstance(asked, (str, Integral))
    try:
        if is_one:
            return named.get(asked) or Selection([every[asked]], [], dim)
        layers = [every[number] for number in asked]
        return Selection(layers, [len(layers)], dim)
    except (IndexError, TypeError):
        raise ValueError(
            f"the layers {output_format!r} are none of {(*named,)}, and no numbers from 0 to "
            f"{every[-1]}"
        ) from None


class RunningBatch(NamedTuple):
    """The layers of a batch, in memory of the CPU, which a GPU may still have to fill."""

    # The layers of each sentence, one after the other: (n_rows, dim)
    rows: torch.Tensor
    # Of each sentence: ([layers,] tokens)
    shapes: list[tuple[int, ...]]
    is_filled: torch.cuda.Event | None = None

    @property
    def n_rows(self) -> list[int]:
        return list(map(math.prod, self.shapes))

    def wait(self) -> np.ndarray:
        """Return the rows once they are there."""
        if self.is_filled is not None:
            self.is_filled.synchronize()
        return self.rows.numpy()

    def wait_for_arrays(self) -> list[np.ndarray]:
        """Return the layers of each sentence, `([layers,] tokens, dim)`, as views of the rows."""
        rows = self.wait()
        ends = [0, *itertools.accumulate(self.n_rows)]
        parts = (rows[start:end] for start, end in itertools.pairwise(ends))
        return [part.reshape(*shape, rows.shape[1]) for part, shape in zip(parts, self.shapes)]


class BatchEmbedder:
    """
    Embed batches of sentences in segments of 2048 tokens. Batches are halved until they fit a GPU's
    memory, with the same numbers.
    """

    elmo_bilm: ElmoBiLm
    _segment_steps = 2048

    def view_batch(self, batch: Sentences, output_format: Layers = "all") -> list[np.ndarray]:
        """Return what `ElmoEmbedder.embed_batch` does, as views of the layers of the batch."""
        running = self.launch_batch(batch, output_format)
        return [array for part in running for array in part.wait_for_arrays()]

    def launch_batch(self, batch: Sentences, output_format: Layers = "all") -> list[RunningBatch]:
        """
        Start to embed a batch, which a GPU may still compute when this returns. It is in parts if
        it was too large for the GPU's memory.
        """
        selection = select_layers(self.elmo_bilm, output_format)
        batch = check_sentences(batch)
        if any(batch) or (batch and not self.elmo_bilm.layout.skips_empty_batches):
            return self._embed(batch, selection)
        rows = torch.empty(0, selection.dim, device="cpu")
        return [RunningBatch(rows, [(*selection.axes, 0)] * len(batch))]

    def embed_all(
        self,
        sentences: Sequence[list[str]],
        output_format: Layers = "all",
        batch_tokens: int = 4096,
        batch_size: int | None = None,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each sentence's index and layers, with a batch of similar lengths in memory."""
        with step_bar("embedding", len(sentences), " sentences") as update:
            for batch in batches_by_length(list(map(len, sentences)), batch_tokens, batch_size):
                yield from zip(batch, self.view_batch([sentences[i] for i in batch], output_format))
                update(len(batch))

    def _embed(self, batch: list[list[str]], selection: Selection) -> list[RunningBatch]:
        # Rows of carried states can't be run one after the other: only time can be cut then.
        can_split = len(batch) > 1 and self.elmo_bilm.initial_state != "carried"
        try:
            with torch.inference_mode():
                return [self._embed_in_segments(batch, selection)]
        except torch.OutOfMemoryError as error:
            if not (can_split or self._segment_steps > 1):
                raise
            logger.warning("%s: embedding half as much at once", str(error).splitlines()[0])
        # Outside of the handler, whose traceback keeps the tensors alive
        torch.cuda.empty_cache()
        if can_split:
            half = len(batch) // 2
            halves = [self._embed(part, selection) for part in (batch[:half], batch[half:])]
            return [*halves[0], *halves[1]]
        longest = max(map(len, batch)) + 2
        self._segment_steps = max(min(self._segment_steps, longest) // 2, 1)
        return self._embed(batch, selection)

    @model_call
    def _embed_in_segments(self, batch: list[list[str]], selection: Selection) -> RunningBatch:
        """
        Run each direction in segments, which start from the state at the end of the last one, so
        that the numbers are those of one run.
        """
        bilm = self.elmo_bilm
        begin, end = bilm.token_layer.boundary_words
        sentences = [[begin, *words, end] for words in batch]
        longest, width = max(map(len, sentences)), self._segment_steps
        # In one segment, both directions read the same words.
        reverse = [words[::-1] for words in sentences] if width < longest else []
        # All layers of a long sentence may be too much for a GPU.
        device = torch.device("cpu") if reverse else next(bilm.parameters()).device
        lengths = list(map(len, batch))
        n_words = copy_to(torch.tensor(lengths, device="cpu"), device)  # (batch_size,)
        rows_a_word = math.prod(selection.axes)
        starts = (n_words.cumsum(0) - n_words) * rows_a_word
        n_rows, dim = sum(lengths) * rows_a_word, bilm.options.projection_dim
        # The last row takes the vectors of boundaries: (n_rows + 1, dim)
        shape = n_rows + 1, selection.dim
        # numpy asks the system for large pages.
        rows = torch.from_numpy(np.empty(shape if device.type == "cpu" else 0, "float32"))
        if device.type != "cpu":
            rows = torch.empty(shape, dtype=rows.dtype, device=device)
        # Carried states change at the end, and so not at all if the memory is too small.
        start = bilm.start()
        carried = copy.copy(start).for_segments(len(batch))
        for first in range(0, longest, width):
            segments, in_reverse = (
                [words[first : first + width] for words in each] for each in (sentences, reverse)
            )
            output = bilm.run_words(segments, in_reverse or None, carried)
            for i, (direction, outputs) in enumerate(output.layers.items()):
                packing = output.packings[direction]
                row, step = packing.row.to(device), packing.forward_step.to(device) + (first - 1)
                n = n_words[row]
                # The place of each token among the words of its sentence: (n_tokens,)
                word = step if direction == "forward" else n - 1 - step
                is_boundary, place = (word < 0) | (word >= n), starts[row] + word
                if selection.layers is None:
                    outputs = [torch.stack(outputs).mean(0)]
                else:
                    outputs = [outputs[number] for number in selection.layers]
                column = i * dim
                for layer in outputs:  # (n_tokens, projection_dim)
                    own = place.masked_fill(is_boundary, n_rows)
                    rows[:, column : column + dim].index_copy_(0, own, layer.to(rows))
                    if selection.axes:
                        place = place + n
                    else:  # the next layer of the same words
                        column += bilm.get_output_dim()
        start.write(carried.states)
        is_filled = None
        if device.type == "cuda":
            with lasting_tensors():  # It is filled when the call has ended.
                on_gpu = rows
                rows = torch.empty(shape, dtype=rows.dtype, device="cpu", pin_memory=True)
            rows.copy_(on_gpu, non_blocking=True)
            is_filled = torch.cuda.Event(blocking=True)
            is_filled.record(torch.cuda.current_stream(device))
        shapes = [(*selection.axes, length) for length in lengths]
        return RunningBatch(rows[:n_rows].cpu(), shapes, is_filled)


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None = None
) -> Iterator[Sequence[int]]:
    """
    Yield batches of sentences of similar lengths, which are numbers of words, as indices. A batch
    has at most `batch_tokens` tokens with the sentence boundaries, or one sentence.
    """
    check_at_least(1, batch_tokens=batch_tokens, batch_size=batch_size)
    batch: list[int] = []
    n_tokens = 0
    # Long sentences first: if the memory is too small for them, this is known early.
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[i] + 2
        if batch and (n_tokens + length > batch_tokens or len(batch) == batch_size):
            yield batch
            batch, n_tokens = [], 0
        batch.append(i)
        n_tokens += length
    if batch:
        yield batch
