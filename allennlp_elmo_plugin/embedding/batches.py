"""Layers of batches of sentences as numpy arrays: what all ways to embed sentences share."""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import numpy
import torch

from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.elmo.many_langs_encoder import ManyLangsEncoder
from allennlp_elmo_plugin.progress import step_bar

logger = logging.getLogger(__name__)

Layers = Literal["all", "top", "average"]
Pooling = Literal["mean", "max"]
OUTPUT_FORMATS: tuple[str, ...] = get_args(Layers)
POOLINGS: dict[str, Callable[..., numpy.ndarray]] = {"mean": numpy.mean, "max": numpy.max}
"""How the vectors of a sentence's words become one."""


def pool(layers: numpy.ndarray, pooling: str) -> numpy.ndarray:
    """Return layers, shape `([layers,] tokens, dim)`, without the tokens; without any, zeros."""
    if not layers.size:
        return numpy.zeros((*layers.shape[:-2], layers.shape[-1]), layers.dtype)
    return POOLINGS[pooling](layers, axis=-2)


class BatchEmbedder:
    """
    Embed batches of sentences in segments of 2048 tokens. Batches are halved until they fit a GPU's
    memory, with the same numbers.
    """

    elmo_bilm: ElmoBiLm
    _segment_steps = 2048

    def view_batch(self, batch: Sentences, output_format: str = "all") -> list[numpy.ndarray]:
        """Return what `ElmoEmbedder.embed_batch` does, as views of the layers of the batch."""
        if output_format not in OUTPUT_FORMATS:
            raise ValueError(f"the layers {output_format!r} are none of {OUTPUT_FORMATS}")
        batch = check_sentences(batch)
        # As in AllenNLP, carried states stay if no sentence has a token; not in ELMoForManyLangs.
        if any(batch) or (batch and isinstance(self.elmo_bilm.token_layer, ManyLangsEncoder)):
            return self._embed(batch, output_format)
        layers = [self.elmo_bilm.num_layers] if output_format == "all" else []
        shape = (*layers, 0, self.elmo_bilm.get_output_dim())
        return [numpy.zeros(shape, dtype="float32") for _ in batch]

    def embed_all(
        self,
        sentences: Sequence[list[str]],
        output_format: str = "all",
        batch_tokens: int = 4096,
        batch_size: int | None = None,
    ) -> Iterator[tuple[int, numpy.ndarray]]:
        """Yield each sentence's index and layers, with a batch of similar lengths in memory."""
        with step_bar("embedding", len(sentences), " sentences") as update:
            for batch in batches_by_length(list(map(len, sentences)), batch_tokens, batch_size):
                yield from zip(batch, self.view_batch([sentences[i] for i in batch], output_format))
                update(len(batch))

    def _embed(self, batch: list[list[str]], output_format: str) -> list[numpy.ndarray]:
        # Rows of carried states can't be run one after the other: only time can be cut then.
        can_split = len(batch) > 1 and self.elmo_bilm.initial_state != "carried"
        try:
            with torch.no_grad():
                return self._embed_in_segments(batch, output_format)
        except torch.OutOfMemoryError as error:
            if not (can_split or self._segment_steps > 1):
                raise
            logger.warning("%s: embedding half as much at once", str(error).splitlines()[0])
        # Outside of the handler, whose traceback keeps the tensors alive
        torch.cuda.empty_cache()
        if can_split:
            half = len(batch) // 2
            halves = [self._embed(part, output_format) for part in (batch[:half], batch[half:])]
            return [*halves[0], *halves[1]]
        longest = max(map(len, batch)) + 2
        self._segment_steps = max(min(self._segment_steps, longest) // 2, 1)
        return self._embed(batch, output_format)

    @model_call
    def _embed_in_segments(self, batch: list[list[str]], output_format: str) -> list[numpy.ndarray]:
        """
        Run each direction in segments, which start from the state at the end of the last one, so
        that the numbers are those of one run.
        """
        bilm = self.elmo_bilm
        begin, end = bilm.token_layer.boundary_words
        sentences = [[begin, *words, end] for words in batch]
        reverse = [words[::-1] for words in sentences]
        lengths = [len(words) for words in sentences]
        longest, width, dim = max(lengths), self._segment_steps, bilm.options.projection_dim
        weights = next(bilm.parameters())
        # All layers of a long sentence may be too much for a GPU.
        device = weights.device if longest <= width else torch.device("cpu")
        ends = torch.tensor(lengths, device=device).cumsum(0)
        starts = ends - torch.tensor(lengths, device=device)
        n_selected = bilm.num_layers if output_format == "all" else 1
        shape = n_selected, sum(lengths), bilm.get_output_dim()
        layers = torch.empty(shape, dtype=weights.dtype, device=device)
        # Carried states change at the end, and so not at all if the memory is too small.
        start = bilm.start()
        carried = copy.copy(start).for_segments(len(batch))
        for first in range(0, longest, width):
            segments, segments_reverse = (
                [words[first : first + width] for words in each] for each in (sentences, reverse)
            )
            # In one segment, both directions read the same words.
            in_reverse = segments_reverse if width < longest else None
            output = bilm.run_words(segments, in_reverse, carried)
            for i, (direction, outputs) in enumerate(output.layers.items()):
                packing = output.packings[direction]
                row, step = packing.row.to(device), first + packing.forward_step.to(device)
                place = starts[row] + step if direction == "forward" else ends[row] - 1 - step
                if output_format == "average":
                    outputs = [torch.stack(outputs).mean(0)]
                selected = torch.stack(outputs[-n_selected:])  # (n_selected, n_tokens, dim)
                layers[:, place, i * dim : (i + 1) * dim] = selected.to(device)
        start.write(carried.states)
        arrays = [array[:, 1:-1].numpy() for array in layers.cpu().split(lengths, 1)]
        return arrays if output_format == "all" else [array[0] for array in arrays]


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None = None
) -> Iterator[Sequence[int]]:
    """
    Yield batches of sentences of similar lengths, which are numbers of words, as indices. A batch
    has at most `batch_tokens` tokens with the sentence boundaries, or one sentence.
    """
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
