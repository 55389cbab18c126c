"""
The token layer of a language model that reads vocabulary ids.
"""

from typing import Optional

import torch

from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_


class TokenEmbedding(torch.nn.Module):
    """
    A token's vector by its vocabulary id: bilm-tf's token layer for options without `char_cnn`.
    Its gradient is sparse: only rows of the batch's tokens have one.
    """

    def __init__(self, n_tokens_vocab: int, output_dim: int, device: Optional[str] = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_tokens_vocab, output_dim, device=device))
        glorot_uniform_(self.weight, n_tokens_vocab, output_dim)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """
        From shape `(n_tokens,)` to `(n_tokens, output_dim)`.
        """
        return torch.nn.functional.embedding(token_ids, self.weight, sparse=True)
