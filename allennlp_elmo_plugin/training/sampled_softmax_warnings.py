"""Warnings about training with a sampled softmax."""

import logging
import math
from collections.abc import Iterable

import torch

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler

logger = logging.getLogger(__name__)

N_TOKENS = 2**14  # as many words of the text decide


class SampledSoftmaxWarnings:
    """
    Warns that the losses of training and evaluation can't be compared, and warns of a vocabulary
    that isn't sorted by frequency, as the log-uniform sampler requires.

    The order is wrong if the first words of the text cost more under the sampler's distribution
    than under a uniform one. In the right order the mean of `ln k` is about half of `ln n_words`,
    and in a random order nearly all of it. `special_ids`, those of `</S>` and `<UNK>`, don't count:
    they come first in any order.
    """

    def __init__(self, sampler: LogUniformSampler, special_ids: Iterable[int] = ()) -> None:
        self._sampler = sampler
        self._special_ids = torch.tensor([*special_ids], dtype=torch.long, device="cpu")
        self._has_started = False
        self._n_seen = 0
        self._cost = 0.0

    def __call__(self, targets: torch.Tensor) -> None:
        """Count vocabulary ids of the next words of the text, shape `(n_tokens,)`."""
        if self._n_seen >= N_TOKENS:
            return
        if not self._has_started:
            self._has_started = True
            logger.warning(
                "The loss and the perplexities of training are those of a softmax over "
                f"{self._sampler.n_samples:,} samples, which is easier: do not compare them with "
                "those of validation and evaluation, which are of the full softmax over "
                f"{self._sampler.n_words:,} words"
            )
        targets = targets[~torch.isin(targets, self._special_ids.to(targets.device))]
        self._cost -= float(self._sampler.probabilities(targets).log().sum())
        self._n_seen += targets.numel()
        is_too_high = self._cost > self._n_seen * math.log(self._sampler.n_words)
        if self._n_seen >= N_TOKENS and is_too_high:
            logger.warning(
                "The vocabulary is not in the order of the frequency of its words in the training "
                "text, which the sampled softmax takes for granted: it will learn badly. Sort the "
                "words by falling frequency (`elmo-vocab` does), or use the full softmax "
                "(num_samples 0)."
            )
