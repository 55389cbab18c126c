"""The interface of ELMoForManyLangs."""

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences, split_letters
from allennlp_elmo_plugin.embedding.batches import Layers
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.atomic import PathLike


class Embedder:
    """
    ELMoForManyLangs' class of this name, for any model. Each sentence starts from zero states, so
    its vectors are always those of a first batch. ELMoForManyLangs carries states from batch to
    batch, and shuffles the batches of a call.
    """

    def __init__(self, model_dir: PathLike, batch_size: int = 64) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._embedder = ElmoEmbedder(model_dir, initial_state="zero", device=device)
        self.batch_size = batch_size

    def sents2elmo(self, sents: Sentences, output_layer: int = -1) -> list[np.ndarray]:
        """
        Return the vectors of each tokenised sentence, shape `(words, dim)`: those of a layer or, by
        default, the average of all layers. For -2, return all layers, `(layers, words, dim)`.
        """
        layers: Layers = "average" if output_layer == -1 else "all"
        sentences = check_sentences(split_letters(sents))
        self._embedder.warn_of_text(sentences)
        arrays = dict(self._embedder.embed_all(sentences, layers, 4096, self.batch_size))
        if output_layer not in (-1, -2):
            arrays = {i: array[output_layer].copy() for i, array in arrays.items()}
        return [arrays[i] for i in range(len(arrays))]
