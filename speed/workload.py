"""What is measured: random text, and models with random weights."""

import functools
import os
from typing import List, Tuple

import numpy
import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions
from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights

Sentence = List[str]


class Corpus:
    """
    Endless random text: word k of the vocabulary has a probability of about 1/k, and sentences have
    log-normal lengths, 22 words in the mean.

    # Parameters

    n_words : `int`, optional (default = `50000`)
        Size of the vocabulary.
    seed : `int`, optional (default = `0`)
        Of everything that is random here.
    """

    def __init__(self, n_words: int = 50_000, seed: int = 0) -> None:
        self._rng = numpy.random.RandomState(seed)
        ranks = numpy.arange(1, n_words + 1)
        self._cumulated = numpy.cumsum(1.0 / ranks) / (1.0 / ranks).sum()

    @functools.cached_property
    def words(self) -> List[str]:
        """The vocabulary, the most frequent word first."""
        rng = numpy.random.RandomState(0)
        ranks = numpy.arange(1, len(self._cumulated) + 1)
        # The rarer the longer, as in any language: 2 to 17 letters or so.
        lengths = 1 + rng.poisson(1 + numpy.log10(ranks) * 1.5)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ("".join(letters[i] for i in rng.randint(0, 26, length)) for length in lengths)
        return [f"{word}{rank % 10}" for word, rank in zip(words, ranks)]

    def word_ids(self, *shape: int) -> "numpy.ndarray":
        """Return places of random words in the vocabulary, the most frequent one's 0."""
        return self._cumulated.searchsorted(self._rng.random_sample(shape))

    def lengths(self, number: int, mean: float = 22.0) -> "numpy.ndarray":
        """Return the numbers of words of random sentences, shape `(number,)`."""
        sigma = 0.6
        mu = numpy.log(mean) - sigma**2 / 2
        return numpy.clip(self._rng.lognormal(mu, sigma, number).round(), 1, 150).astype(int)

    def sentences(self, number: int, mean: float = 22.0) -> List[Sentence]:
        lengths = self.lengths(number, mean)
        return [[self.words[i] for i in self.word_ids(length)] for length in lengths]

    def batches(self, number: int, size: int = 64, by_length: bool = False) -> List[List[Sentence]]:
        """Return batches of so many sentences, if asked for of similar length in each."""
        sentences = self.sentences(number * size)
        if by_length:
            sentences.sort(key=len)
        batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]
        self._rng.shuffle(batches)
        return batches


_FILTERS = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]

SIZES = {"small": (1024, 128, 1, 7), "original": (4096, 512, 2, 7), "tiny": (64, 16, 1, 3)}
"""Cells, projections, highway layers and widths of filters; `tiny` is for a quick look."""


def write_model(size: str, folder: str) -> Tuple[str, str]:
    """Write the options.json and weights.hdf5 of a random model, and return their paths."""
    lstm_dim, projection_dim, n_highway, n_filters = SIZES[size]
    options = BiLmOptions.from_dict(
        {
            "lstm": {
                "dim": lstm_dim,
                "projection_dim": projection_dim,
                "n_layers": 2,
                "cell_clip": 3.0,
                "proj_clip": 3.0,
                "use_skip_connections": True,
            },
            "char_cnn": {
                "embedding": {"dim": 16},
                "filters": _FILTERS[:n_filters],
                "n_highway": n_highway,
            },
        }
    )
    torch.manual_seed(0)
    files = os.path.join(folder, "options.json"), os.path.join(folder, "weights.hdf5")
    options.write(files[0])
    write_weights(files[1], BiLm(options))
    return files
