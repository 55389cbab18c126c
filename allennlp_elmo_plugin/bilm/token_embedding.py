from typing import List, Optional

import torch

from allennlp_elmo_plugin.bilm.initialization import glorot_uniform_


class TokenEmbedding(torch.nn.Module):
    """
    A token's vector by its vocabulary id: bilm-tf's token layer for options without `char_cnn`.
    Its gradient is sparse: only rows of the batch's tokens have one.

    # Parameters

    n_tokens_vocab, output_dim : `int`
        Words of the vocabulary, size of a vector.
    device : `str`, optional
        See `BiLm`.
    """

    def __init__(self, n_tokens_vocab: int, output_dim: int, device: Optional[str] = None) -> None:
        super().__init__()
        self.output_dim = output_dim
        self.weight = torch.nn.Parameter(torch.empty(n_tokens_vocab, output_dim, device=device))
        glorot_uniform_(self.weight, n_tokens_vocab, output_dim)

    @property
    def weights(self) -> List[torch.Tensor]:
        """
        The parameters, also where they are none for torch: in a replica of `DataParallel`.
        """
        return [self.weight]

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.embed_tokens(token_ids)

    def embed_tokens(self, token_ids: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        token_ids : `torch.Tensor`
            Shape `(n_tokens,)`.

        # Returns

        `torch.Tensor`
            Shape `(n_tokens, output_dim)`.
        """
        return torch.nn.functional.embedding(token_ids, self.weight, sparse=True)
