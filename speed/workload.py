"""What is measured: random text, models with random weights, and a step of training."""

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.characters import sentences_to_character_ids
from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.pretrained.weight_file import write_weights
from allennlp_elmo_plugin.text.vocabulary import SPECIAL_WORDS
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.optimizer import Adagrad

Sentence = list[str]

NUM_STEPS = 20


class Corpus:
    """
    Endless random text. The probability of word k is proportional to 1/k. Sentences have log-normal
    lengths, 22 words on average.
    """

    def __init__(self, n_words: int = 50_000, seed: int = 0) -> None:
        self._rng = np.random.RandomState(seed)
        ranks = np.arange(1, n_words + 1)
        self._cumulated = np.cumsum(1.0 / ranks) / (1.0 / ranks).sum()

    @functools.cached_property
    def words(self) -> list[str]:
        """The vocabulary, the most frequent word first."""
        rng = np.random.RandomState(0)
        ranks = np.arange(1, len(self._cumulated) + 1)
        # Rare words are longer, as in any language: about 2 to 17 letters.
        lengths = 1 + rng.poisson(1 + np.log10(ranks) * 1.5)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ("".join(letters[i] for i in rng.randint(0, 26, length)) for length in lengths)
        return [f"{word}{rank % 10}" for word, rank in zip(words, ranks)]

    def word_ids(self, *shape: int) -> "np.ndarray":
        """Return the ids of random words; 0 is the most frequent word."""
        return self._cumulated.searchsorted(self._rng.random_sample(shape))

    def sentences(self, number: int) -> list[Sentence]:
        sigma = 0.6
        mu = np.log(22) - sigma**2 / 2
        lengths = np.clip(self._rng.lognormal(mu, sigma, number).round(), 1, 150).astype(int)
        return [[self.words[i] for i in self.word_ids(length)] for length in lengths]

    def batches(self, number: int, size: int = 64, by_length: bool = False) -> list[list[Sentence]]:
        """Return batches of `size` sentences, with `by_length` of similar length in each batch."""
        sentences = self.sentences(number * size)
        if by_length:
            sentences.sort(key=len)
        batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]
        self._rng.shuffle(batches)
        return batches


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

SIZES = {"small": (1024, 128, 1, 7), "original": (4096, 512, 2, 7), "tiny": (64, 16, 1, 3)}
"""Cells, projections, highway layers and widths of filters; `tiny` is for a quick look."""


def random_model(size: str) -> BiLm:
    """Return the model of a size in `SIZES`, with the same random weights each time."""
    lstm_dim, projection_dim, n_highway, n_filters = SIZES[size]
    char_cnn = CharCnnOptions(_FILTERS[:n_filters], "relu", embedding_dim=16, n_highway=n_highway)
    options = BiLmOptions(lstm_dim, projection_dim, 2, 3.0, 3.0, True, char_cnn)
    torch.manual_seed(0)
    return BiLm(options)


def write_model(size: str, folder: str) -> tuple[str, str]:
    """Write the options.json and weights.hdf5 of a random model, and return their paths."""
    files = os.path.join(folder, "options.json"), os.path.join(folder, "weights.hdf5")
    model = random_model(size)
    model.options.write(files[0])
    write_weights(files[1], model)
    return files


def character_ids(sentences: Sequence[Sentence]) -> torch.Tensor:
    """Return the character ids of sentences with their boundaries."""
    return torch.from_numpy(
        sentences_to_character_ids([["<S>", *words, "</S>"] for words in sentences])
    )


class Batch(NamedTuple):
    """
    Input of a training step: character ids of sentences with their boundaries, shape `(batch_size,
    NUM_STEPS, 50)`; the targets of each direction, shape `(batch_size, NUM_STEPS)`; and what our
    reader gives in place of the first, the character ids of distinct words, shape `(n_words, 50)`,
    and the tokens' places in it, shape `(batch_size, NUM_STEPS)`.
    """

    character_ids: torch.Tensor
    targets: torch.Tensor
    targets_reverse: torch.Tensor
    words: torch.Tensor
    tokens: torch.Tensor


def make_batch(corpus: Corpus, n_words: int, batch_size: int) -> Batch:
    rows = [[corpus.words[i] for i in corpus.word_ids(NUM_STEPS - 2)] for _ in range(batch_size)]
    targets = Corpus(n_words, seed=int(corpus.word_ids())).word_ids(2, batch_size, NUM_STEPS)
    ids = character_ids(rows)
    words, tokens = ids.flatten(0, 1).unique(dim=0, return_inverse=True)
    return Batch(ids, *torch.from_numpy(targets), words.short(), tokens.view(batch_size, -1))


class OurTraining(LanguageModel):
    """The random model of a size, trained with a sampled softmax, as in pretraining."""

    def __init__(self, size: str, n_words: int, n_samples: int, precision: str = "float32") -> None:
        options = random_model(size).options.to_dict()
        words = [*SPECIAL_WORDS, *map(str, range(len(SPECIAL_WORDS), n_words))]
        torch.manual_seed(0)
        super().__init__(options, words, num_samples=n_samples, precision=precision)
        # Made in the first step, when the parameters are on their device.
        self._optimizer: Any = None

    def loss(self, batch: Batch, samples: Samples | None = None) -> torch.Tensor:
        """Return the loss. With `samples`, the model's state stays as it was."""
        sampler: Any = self.softmax.sampler
        if samples is not None:
            state, sampler.sample = self.training_state(), lambda: samples
        loss = self(
            batch.tokens,
            batch.targets,
            batch.tokens.flip(1),
            batch.targets_reverse.flip(1),
            character_ids=batch.words,
        )["loss"]
        if samples is not None:
            del sampler.sample
            self.load_training_state(state)
        return loss

    def step(self, batch: Batch) -> None:
        if self._optimizer is None:
            self._optimizer = Adagrad(
                self.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=0.0
            )
        self._optimizer.zero_grad()
        self.loss(batch).backward()
        self._optimizer.step()
