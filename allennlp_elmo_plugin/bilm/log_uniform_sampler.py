import math
from typing import Dict, NamedTuple

import numpy
import torch


class Samples(NamedTuple):
    """
    Negative samples of a batch.

    # Parameters

    ids : `torch.Tensor`
        Distinct vocabulary ids, shape `(n_samples,)`.
    num_tries : `int`
        Draws it took to find them, repeats counted.
    """

    ids: torch.Tensor
    num_tries: int


class LogUniformSampler:
    """
    Draws distinct words as TensorFlow's `log_uniform_candidate_sampler(unique=True)` does: word k
    of a vocabulary in falling order of frequency with probability `p(k) = ln((k + 2) / (k + 1)) /
    ln(n_words + 1)`, again and again until there are enough distinct ones.

    Draws come from torch's random numbers on the CPU.

    # Parameters

    n_words : `int`
        Size of the vocabulary.
    n_samples : `int`
        Distinct words to draw, fewer than there are.
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
        # As many draws as the last batch needed, and some more.
        self._n_draws = 2 * n_samples

    def sample(self) -> Samples:
        """
        # Returns

        `Samples`
            In the order in which they were drawn first.
        """
        draws = self._draw(self._n_draws)
        words, first_draws = numpy.unique(draws, return_index=True)
        while len(words) < self.n_samples:
            draws = numpy.concatenate([draws, self._draw(len(draws))])
            words, first_draws = numpy.unique(draws, return_index=True)
        chosen = numpy.sort(first_draws)[: self.n_samples]  # (n_samples,)
        # Next time as many draws as now, and some more.
        num_tries = int(chosen[-1]) + 1
        self._n_draws = num_tries + num_tries // 8 + 16
        return Samples(torch.from_numpy(draws[chosen]), num_tries)

    def state_dict(self) -> Dict[str, int]:
        """
        What the next samples depend on beside torch's random numbers.
        """
        return {"n_draws": self._n_draws}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """
        Takes over what `state_dict` gave.
        """
        self._n_draws = state["n_draws"]

    def expected_count(self, ids: torch.Tensor, num_tries: int) -> torch.Tensor:
        """
        How often a word is expected among the samples: `1 - (1 - p)^num_tries`, and `p * n_samples`
        where no draw was a repeat, as TensorFlow has it.

        # Parameters

        ids : `torch.Tensor`
            Vocabulary ids of any shape.
        num_tries : `int`
            The samples' `num_tries`.

        # Returns

        `torch.Tensor`
            Of double precision, shaped like `ids`.
        """
        ids = ids.double()
        p = torch.log1p(1.0 / (ids + 1.0)) / self._log_range
        if num_tries == self.n_samples:
            return p * num_tries
        return -torch.expm1(num_tries * torch.log1p(-p))

    def _draw(self, n_draws: int) -> numpy.ndarray:
        uniform = torch.rand(n_draws, dtype=torch.float64, device="cpu")
        ids = (uniform * self._log_range).exp_().sub_(1.0).long()  # (n_draws,)
        # Rounding may reach the end of the range, which the distribution does not.
        return ids.remainder_(self.n_words).numpy()
