"""A metric that counts each token once."""

import torch


class TokenMean:
    """The mean of a number over all tokens. AllenNLP's metrics average over batches of any size."""

    def __init__(self) -> None:
        self.total: float | torch.Tensor = 0.0
        self.n_tokens = 0.0

    def add(self, total: float | torch.Tensor, n_tokens: float) -> None:
        """Add a sum over `n_tokens` tokens. One on a GPU is only read when the mean is needed."""
        self.total = self.total + total
        self.n_tokens += n_tokens

    def get_metric(self, reset: bool = False) -> float:
        """Return the mean, or 0 without tokens."""
        mean = float(self.total) / self.n_tokens if self.n_tokens else 0.0
        if reset:
            self.total = self.n_tokens = 0.0
        return mean

    def state_dict(self) -> dict[str, float]:
        return {"total": float(self.total), "n_tokens": self.n_tokens}
