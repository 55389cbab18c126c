"""The softmax of the language model, with full and sampled losses."""

import math

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import product_type
from allennlp_elmo_plugin.bilm.kernels.softmax_loss import FullLoss, SampledLoss, log_probabilities
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler, Samples
from allennlp_elmo_plugin.bilm.model_call import model_call


class Softmax(torch.nn.Module):
    """
    The output layer of a biLM, shared by both directions, with bilm-tf's sampled softmax (Jean et
    al. 2015) if `num_samples` is not 0. Pass the token embedding as `weight` to share it.
    """

    def __init__(
        self,
        n_words: int,
        dim: int,
        num_samples: int = 0,
        weight: torch.nn.Parameter | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.sampler = LogUniformSampler(n_words, num_samples) if num_samples else None
        self.precision = "float32"  # or "bfloat16", in the sampled loss
        self.bias = torch.nn.Parameter(torch.zeros(n_words, device=device))
        if weight is None:
            weight = torch.nn.Parameter(torch.empty(n_words, dim, device=device))
            if device != "meta":
                torch.nn.init.normal_(weight, std=1.0 / math.sqrt(dim))
        self.weight = weight

    @model_call
    def loss(
        self, hidden: torch.Tensor, targets: torch.Tensor, samples: Samples | None = None
    ) -> torch.Tensor:
        """
        Return the mean negative log likelihood of vocabulary ids `targets`, shape `(n_tokens,)`,
        given vectors `hidden`, shape `(n_tokens, dim)`. With a sampler, the other words are
        `samples`, by default new ones, without the target.
        """
        if self.sampler is None:
            return FullLoss.apply(hidden, self.weight, self.bias, targets)
        samples = samples or self.sampler.sample()
        words = torch.cat([samples.ids.to(targets.device, non_blocking=True), targets])
        log_counts = self.sampler.expected_count(words, samples.num_tries).log_().to(hidden.dtype)
        dtype = product_type(hidden, self.precision)
        return SampledLoss.apply(dtype, hidden, self.weight, self.bias, words, log_counts)

    @torch.no_grad()
    @model_call
    def log_probabilities(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the targets' log probabilities under the full softmax, shape `(n_tokens,)`."""
        return log_probabilities(hidden, self.weight, self.bias, targets)
