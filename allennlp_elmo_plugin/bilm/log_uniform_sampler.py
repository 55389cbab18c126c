"""Negative samples for the softmax, drawn as TensorFlow draws them."""

import math
from typing import NamedTuple

import numpy as np
import torch


class Samples(NamedTuple):
    """Distinct vocabulary ids, shape `(n_samples,)`, and how many draws they took."""

    ids: torch.Tensor
    num_tries: int


class LogUniformSampler:
    """
    Draws `n_samples` distinct words as TensorFlow's `log_uniform_candidate_sampler(unique=True)`
    does, with torch's random numbers on the CPU. Word k of `n_words`, most frequent first, has the
    probability `p(k) = ln((k + 2) / (k + 1)) / ln(n_words + 1)`.
    """

    def __init__(self, n_words: int, n_samples: int) -> None:
        if not 0 < n_samples < n_words:
            raise ValueError(
                f"cannot draw {n_samples} distinct negative samples from a vocabulary of {n_words} "
                "words: num_samples must be below its size (0 for the full softmax)"
            )
        self.n_words = n_words
        self.n_samples = n_samples
        self._log_range = math.log(n_words + 1)
        # Draws for the next batch: somewhat more than the last one needed.
        self._n_draws = 2 * n_samples

    def sample(self) -> Samples:
        """Return samples in the order of their first draws."""
        draws = self._draw(self._n_draws)
        while len(first_draws := self._first_draws(draws)) < self.n_samples:
            draws = np.concatenate([draws, self._draw(len(draws))])
        chosen = first_draws[: self.n_samples]  # (n_samples,)
        num_tries = int(chosen[-1]) + 1
        self._n_draws = num_tries + num_tries // 8 + 16
        return Samples(torch.from_numpy(draws[chosen]), num_tries)

    def _draw(self, n_draws: int) -> np.ndarray:
        uniform = torch.rand(n_draws, dtype=torch.float64, device="cpu")
        ids = (uniform * self._log_range).exp_().sub_(1.0).long()  # (n_draws,)
        # Rounding may give `n_words` itself.
        return ids.remainder_(self.n_words).numpy()

    def _first_draws(self, draws: np.ndarray) -> np.ndarray:
        """Return the places of each word's first draw, in ascending order."""
        places = np.arange(len(draws), dtype=np.int32)
        first = np.empty(self.n_words, dtype=np.int32)  # by word
        # Of several values for a word, NumPy keeps the last, which is the first draw after
        # reversing. Copying the reversed arrays first is twice as fast.
        first[draws[::-1].copy()] = places[::-1].copy()
        return np.flatnonzero(first.take(draws) == places)

    def state_dict(self) -> dict[str, int]:
        """Return what the next samples depend on, apart from torch's random numbers."""
        return {"n_draws": self._n_draws}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._n_draws = state["n_draws"]

    def probabilities(self, ids: torch.Tensor) -> torch.Tensor:
        """Return `p` of words, float64, in the shape of `ids`."""
        return ids.double().add_(1.0).reciprocal_().log1p_().div_(self._log_range)

    def expected_count(self, ids: torch.Tensor, num_tries: int) -> torch.Tensor:
        """
        Return how often words are expected among samples that took `num_tries` draws, in the shape
        of `ids`: `1 - (1 - p)^num_tries`, or `p * n_samples` without repeats, as in TensorFlow.
        """
        p = self.probabilities(ids)
        if num_tries == self.n_samples:
            return p.mul_(num_tries)
        return p.neg_().log1p_().mul_(num_tries).expm1_().neg_()
