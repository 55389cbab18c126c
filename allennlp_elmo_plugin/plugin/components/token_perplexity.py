"""Perplexity that counts every token once, and a loss that agrees with it."""

import math
from typing import Any

import torch
from allennlp.nn.util import dist_reduce_sum

from allennlp_elmo_plugin.analysis.sentence_probabilities import perplexity_of


class TokenPerplexity:
    """
    `exp` of the mean negative log likelihood of all tokens. AllenNLP's `Perplexity` averages over
    batches, whatever their size.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.n_tokens = 0.0

    def __call__(self, loss: torch.Tensor, n_tokens: int) -> None:
        """Add the summed negative log likelihood, in nats, of so many tokens of each process."""
        self.total += dist_reduce_sum(float(loss))
        self.n_tokens += dist_reduce_sum(n_tokens)

    def get_metric(self, reset: bool = False) -> float:
        """Return the perplexity; 0 if no token was seen, infinity where a float can't hold it."""
        perplexity = perplexity_of(self.total / self.n_tokens) if self.n_tokens else 0.0
        if reset:
            self.total = self.n_tokens = 0.0
        return perplexity


class AgreeingMetrics(dict[str, Any]):
    """
    Metrics in which a `loss` that is set becomes the logarithm of `perplexity`. AllenNLP sets the
    mean of the batches' losses, in which the words of a small last batch weigh more.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "loss" and 0 < self.get("perplexity", 0.0) < math.inf:
            value = math.log(self["perplexity"])
        super().__setitem__(name, value)
