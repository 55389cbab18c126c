"""The metrics of a language model as AllenNLP's trainer needs them."""

import math
from typing import Any


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
