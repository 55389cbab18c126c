"""Perplexity that counts every token once, and a loss that agrees with it."""

import math
from typing import Any, Dict

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

from allennlp_elmo_plugin.models.sentence_probabilities import perplexity_of


@Metric.register("token_perplexity")
class TokenPerplexity(Metric):
    """
    `exp` of the mean negative log likelihood of a token, every token counted once. AllenNLP's
    `perplexity` averages over batches, whatever their size.
    """

    def __init__(self) -> None:
        self.reset()

    def __call__(  # type: ignore[override]
        self, loss: torch.Tensor, n_tokens: int
    ) -> None:
        """Add the summed negative log likelihood, in nats, of so many tokens."""
        self._total += dist_reduce_sum(float(loss))
        self.n_tokens += dist_reduce_sum(n_tokens)

    def get_metric(self, reset: bool = False) -> float:
        """Return the perplexity; 0 if no token was seen, infinity where a float can't hold it."""
        perplexity = perplexity_of(self._total / self.n_tokens) if self.n_tokens else 0.0
        if reset:
            self.reset()
        return perplexity

    def state_dict(self) -> Dict[str, float]:
        """Return the sums since the last `reset`."""
        return {"total": self._total, "n_tokens": self.n_tokens}

    def load_state_dict(self, state: Dict[str, float]) -> None:
        """Restore what `state_dict` returned."""
        self._total, self.n_tokens = state["total"], state["n_tokens"]

    def reset(self) -> None:
        self._total = 0.0
        self.n_tokens = 0.0


class AgreeingMetrics(Dict[str, Any]):
    """
    Metrics of a language model, in which a loss that is set becomes the logarithm of the
    perplexity. AllenNLP sets the mean of the batches' losses, in which the words of a small last
    batch weigh more.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        perplexity = self.get("perplexity", 0.0)
        if name == "loss" and 0 < perplexity < math.inf:
            value = math.log(perplexity)
        super().__setitem__(name, value)
