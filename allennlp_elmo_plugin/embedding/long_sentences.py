"""
Layers of sentences that are too long to be run at once.
"""

from typing import Any, Callable, List, Sequence

import numpy
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.bilm.model import BiLm


def embed_in_segments(
    bilm: BiLm,
    batch: Sequence[Sequence[str]],
    carried: CarriedState,
    width: int,
    select: Callable[[List[torch.Tensor]], List[torch.Tensor]],
) -> List[Any]:
    """
    Return layers of tokenised sentences of any length, which a model of characters runs in segments
    of `width` steps. Each direction starts a segment from the state that it left in the last one,
    so that the numbers are those of one run, but only one segment is in the model's memory.

    # Parameters

    carried : `CarriedState`
        What the sentences start from; it is updated.
    select : `Callable[[List[torch.Tensor]], List[torch.Tensor]]`
        What to compute from the layers of a direction, shape `(n_tokens, projection_dim)` each.

    # Returns

    `List[numpy.ndarray]`
        For each sentence float32 of shape `(n_selected, len(sentence), output_dim)`.
    """
    sentences = [[BEGIN_SENTENCE_WORD, *words, END_SENTENCE_WORD] for words in batch]
    reverse = [words[::-1] for words in sentences]
    carried = carried.for_segments(len(sentences))
    dim = bilm.options.projection_dim
    arrays: List[Any] = []
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
