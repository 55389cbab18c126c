"""ELMo at the output of an encoder."""

from typing import Optional

import torch
from allennlp.modules import Highway, Seq2SeqEncoder


@Seq2SeqEncoder.register("elmo_output")
class ElmoOutputEncoder(Seq2SeqEncoder):
    """
    An encoder with ELMo at its output (Peters et al. 2018, section 3.3: "[h; ELMo]"). The first
    `elmo_dim` features of a token bypass the encoder and are prepended to its output, so `"elmo"`
    has to be the first of the embedders' names in alphabetical order. With
    `num_output_representations` 2, the second representation is part of the encoder's input.

    `num_highway_layers` precede the encoder. BiDAF's own highway layers would mix the
    representation with the other features: set theirs to 0, and these to their former number.
    """

    def __init__(self, encoder: Seq2SeqEncoder, elmo_dim: int, num_highway_layers: int = 0) -> None:
        super().__init__()
        self._encoder = encoder
        self._elmo_dim = elmo_dim
        self._highway = Highway(encoder.get_input_dim(), num_highway_layers)

    def get_input_dim(self) -> int:
        return self._elmo_dim + self._encoder.get_input_dim()

    def get_output_dim(self) -> int:
        return self._elmo_dim + self._encoder.get_output_dim()

    def is_bidirectional(self) -> bool:
        return self._encoder.is_bidirectional()

    def forward(
        self, inputs: torch.Tensor, mask: Optional[torch.BoolTensor] = None
    ) -> torch.Tensor:
        """From `(batch_size, timesteps, input_dim)` to `(batch_size, timesteps, output_dim)`."""
        elmo, features = inputs.split([self._elmo_dim, inputs.size(-1) - self._elmo_dim], dim=-1)
        flat = self._highway(features.flatten(0, -2))  # (batch_size * timesteps, n_features)
        return torch.cat([elmo, self._encoder(flat.view(*features.shape), mask)], dim=-1)
