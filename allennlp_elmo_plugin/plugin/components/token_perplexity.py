"""Metrics that count each token once."""

import math
from typing import Any

import torch
from allennlp.nn.util import dist_reduce_sum

from allennlp_elmo_plugin.analysis.sentence_probabilities import perplexity_of


class TokenMean:
    """The mean of a number over all tokens."""

    def __init__(self) -> None:
        self.total = 0.0
        self.n_tokens = 0.0

    def __call__(self, total: float | torch.Tensor, n_tokens: int) -> None:
        """Add a sum over `n_tokens` tokens of this process."""
        self.total += dist_reduce_sum(float(total))
        self.n_tokens += dist_reduce_sum(n_tokens)

    def get_metric(self, reset: bool = False) -> float:
        """Return the mean, or 0 without tokens."""
        mean = self.total / self.n_tokens if self.n_tokens else 0.0
        if reset:
            self.total = self.n_tokens = 0.0
        return mean


class TokenPerplexity(TokenMean):
    """
    `exp` of the mean negative log likelihood in nats, infinity where a float can't hold it.
    AllenNLP's `Perplexity` averages over batches, whatever their size.
    """

    def get_metric(self, reset: bool = False) -> float:
        return perplexity_of(super().get_metric(reset)) if self.n_tokens else 0.0


class AgreeingMetrics(dict[str, Any]):
    """
    Metrics with the `loss` that belongs to `perplexity`. AllenNLP sets `loss` to the mean over
    batches, in which the words of a small last batch count more; it is replaced by the logarithm of
    `perplexity`. `unknown_words`, their share, appears together with it.
    """

    unknown_words: float | None = None

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "loss" and self.unknown_words is not None:
            super().__setitem__("unknown_words", self.unknown_words)
        if name == "loss" and 0 < self.get("perplexity", 0.0) < math.inf:
            value = math.log(self["perplexity"])
        super().__setitem__(name, value)
