"""The text of the workloads: sentences of random length, words of a Zipf vocabulary."""

import functools
from typing import List

import numpy

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
        """
        # Returns

        `numpy.ndarray`
            Places of random words in the vocabulary, the most frequent one's 0, of the given shape.
        """
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
        """
        # Parameters

        number, size : `int`
            How many batches, of how many sentences.
        by_length : `bool`, optional (default = `False`)
            Whether sentences are sorted first, so that a batch has sentences of like length.
        """
        sentences = self.sentences(number * size)
        if by_length:
            sentences.sort(key=len)
        batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]
        self._rng.shuffle(batches)
        return batches
