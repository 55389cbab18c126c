"""Layers of batches of sentences as numpy arrays: what all ways to embed sentences share."""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import check_sentences
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.elmo.many_langs_encoder import ManyLangsEncoder
from allennlp_elmo_plugin.progress import step_bar

logger = logging.getLogger(__name__)

_SEGMENT_STEPS = 2048

OUTPUT_FORMATS = ("all", "top", "average")
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

    def __init__(self, elmo_bilm: ElmoBiLm) -> None:
        self.elmo_bilm = elmo_bilm
        self._segment_steps = _SEGMENT_STEPS

    def view_batch(self, batch: list[list[str]], output_format: str = "all") -> list[numpy.ndarray]:
        """Return what `ElmoEmbedder.embed_batch` does, as views of the layers of the batch."""
        if output_format not in OUTPUT_FORMATS:
            raise ValueError(f"the layers {output_format!r} are none of {OUTPUT_FORMATS}")
        batch = check_sentences(batch)
        shape: tuple[int, ...] = (0, self.elmo_bilm.get_output_dim())
        if output_format == "all":
            shape = (self.elmo_bilm.num_layers, *shape)
        arrays: list[numpy.ndarray] = [numpy.zeros(shape, dtype="float32") for _ in batch]
        # Carried states depend on sentences without tokens too, in AllenNLP only beside others.
        is_run = any(batch) or isinstance(self.elmo_bilm.token_layer, ManyLangsEncoder)
        carried = self.elmo_bilm.initial_state == "carried"
        rows = [i for i, sentence in enumerate(batch) if sentence or (carried and is_run)]
        if rows:
            for i, array in zip(rows, self._embed([batch[i] for i in rows], output_format)):
                arrays[i] = array
        return arrays

    def embed_all(
        self, sentences: Sequence[list[str]], output_format: str = "all", batch_tokens: int = 4096
    ) -> Iterator[tuple[int, numpy.ndarray]]:
        """Yield each sentence's index and layers, with a batch of similar lengths in memory."""
        with step_bar("embedding", len(sentences), "sentences") as update:
            for batch in batches_by_length(list(map(len, sentences)), batch_tokens):
                yield from zip(batch, self.view_batch([sentences[i] for i in batch], output_format))
                update(len(batch))

    def _embed(self, batch: list[list[str]], output_format: str) -> list[numpy.ndarray]:
        # Rows of carried states can't be run one after the other: only time can be cut then.
        can_split = len(batch) > 1 and self.elmo_bilm.initial_state != "carried"
        try:
            with torch.no_grad():
                return self._embed_at_once(batch, output_format)
        except torch.OutOfMemoryError as error:
            if not (can_split or self._segment_steps > 1):
                raise
            logger.warning("%s: embedding half as much at once", str(error).splitlines()[0])
        # Outside of the handler, whose traceback keeps the tensors alive
        torch.cuda.empty_cache()
        if can_split:
            half = len(batch) // 2
            halves = batch[:half], batch[half:]
            return [array for each in halves for array in self._embed(each, output_format)]
        longest = max(map(len, batch)) + 2
        self._segment_steps = max(min(self._segment_steps, longest) // 2, 1)
        return self._embed(batch, output_format)

    @model_call
    def _embed_at_once(self, batch: list[list[str]], output_format: str) -> list[numpy.ndarray]:
        def select(layers: list[torch.Tensor]) -> list[torch.Tensor]:
            if output_format == "average":
                return [torch.stack(layers).mean(0)]
            return {"all": layers, "top": layers[-1:]}[output_format]

        # Carried states change at the end, and so not at all if the memory is too small.
        start = self.elmo_bilm.start()
        states = copy.copy(start)
        if max(map(len, batch)) + 2 > self._segment_steps:
            selected = embed_in_segments(self.elmo_bilm, batch, states, self._segment_steps, select)
        else:
            output = self.elmo_bilm.run_sentences(batch, states)
            # For each layer the two directions, (n_tokens, projection size) each
            layers = zip(*(select(layers) for layers in output.layers.values()))
            unpacked = [output.packing.unpack(each, strip=1) for each in layers]
            # (batch_size, layers, timesteps, 2 * projection size)
            rows = torch.stack(unpacked, dim=1).cpu().numpy()
            selected = [row[:, : len(sentence)] for row, sentence in zip(rows, batch)]
        start.write(states.states)
        return [row if output_format == "all" else row[0] for row in selected]


def embed_in_segments(
    bilm: ElmoBiLm,
    batch: Sequence[Sequence[str]],
    carried: CarriedState,
    width: int,
    select: Callable[[list[torch.Tensor]], list[torch.Tensor]],
) -> list[numpy.ndarray]:
    """
    Return what `select` computes from the layers of tokenised sentences, for each float32 of shape
    `(n_selected, len(sentence), output_dim)`, with the numbers of one run: each direction starts a
    segment of `width` steps from the state that it left in the last one. `carried` is updated.
    """
    begin, end = bilm.token_layer.boundary_words
    sentences = [[begin, *words, end] for words in batch]
    reverse = [words[::-1] for words in sentences]
    carried = carried.for_segments(len(sentences))
    dim = bilm.options.projection_dim
    arrays: list[numpy.ndarray] = []
    for start in range(0, max(map(len, sentences)), width):
        segments, segments_reverse = (
            [words[start : start + width] for words in each] for each in (sentences, reverse)
        )
        output = bilm.run_words(segments, segments_reverse, carried)
        for i, (direction, layers) in enumerate(output.layers.items()):
            vectors = torch.stack(select(layers)).cpu().numpy()  # (n_selected, n_tokens, dim)
            if not arrays:
                arrays = [
                    numpy.empty((len(vectors), len(words), bilm.get_output_dim()), "float32")
                    for words in sentences
                ]
            packing = output.packings[direction]
            rows, steps = packing.row.cpu().numpy(), packing.forward_step.cpu().numpy()
            for row, array in enumerate(arrays):
                here = rows == row
                places = start + steps[here]
                if direction == "backward":
                    places = array.shape[1] - 1 - places
                array[:, places, i * dim : (i + 1) * dim] = vectors[:, here]
    return [array[:, 1:-1] for array in arrays]


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, batch_size: int | None = None
) -> Iterator[Sequence[int]]:
    """
    Yield the indices of the sentences of each batch, given their numbers of words: sentences of
    similar lengths, with at most `batch_tokens` tokens, boundaries counted, or one sentence.
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
