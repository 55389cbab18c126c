"""The interface of simple_elmo."""

from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.characters import Sentences, check_sentences, split_letters
from allennlp_elmo_plugin.embedding.batches import Layers
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.atomic import PathLike


class ElmoModel:
    """
    simple_elmo's class of this name, for any model. To warm up, it doesn't read the first batch:
    each sentence starts from the settled state and, without `warmup`, from zero. So its vectors are
    the same in each call. The arguments `limit` and `session` are ignored.
    """

    def load(
        self, directory: PathLike, max_batch_size: int = 32, limit: int = 100, full: bool = False
    ) -> str:
        if full:
            raise ValueError("full=True: to predict words, use elmo-import and bidirectional_lm")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._embedder = ElmoEmbedder(directory, device=device)
        self.batch_size = max_batch_size
        self.vector_size = self._embedder.elmo_bilm.get_output_dim()
        self.n_layers = self._embedder.elmo_bilm.num_layers
        return "The model is now loaded."

    def get_elmo_vectors(
        self, texts: Sentences, warmup: bool = True, layers: Layers = "average", session: Any = None
    ) -> np.ndarray:
        """
        Return the vectors of the words of tokenised sentences, shape `(sentences, words, dim)`,
        with zeros after the last word. For `"all"` layers, `(sentences, layers, words, dim)`.
        """
        sentences = self._start(texts, warmup)
        axes = [self.n_layers] if layers == "all" else []
        n_words = max(map(len, sentences), default=0)
        vectors = np.zeros((len(sentences), *axes, n_words, self.vector_size))
        for i, array in self._embedder.embed_all(sentences, layers, 4096, self.batch_size):
            vectors[i, ..., : len(sentences[i]), :] = array
        return vectors

    def get_elmo_vector_average(
        self, texts: Sentences, warmup: bool = True, layers: Layers = "average", session: Any = None
    ) -> np.ndarray:
        """Return the means over the words, scaled to length 1: `(sentences, [layers,] dim)`."""
        sentences = self._start(texts, warmup)
        options: Any = {"batch_size": self.batch_size, "normalize_embeddings": True}
        return self._embedder.encode(sentences, "mean", layers, **options).astype("float64")

    def _start(self, texts: Sentences, warmup: bool) -> list[list[str]]:
        self._embedder.elmo_bilm.initial_state = "settled" if warmup else "zero"
        sentences = check_sentences(split_letters(texts))
        self._embedder.warn_of_text(sentences)
        return sentences
