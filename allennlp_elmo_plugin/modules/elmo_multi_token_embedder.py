from typing import Optional

import torch
from allennlp.modules.token_embedders import TokenEmbedder

from allennlp_elmo_plugin.modules.elmo import Elmo
from allennlp_elmo_plugin.modules.elmo_bilm import MAX_CACHED_WORDS
from allennlp_elmo_plugin.modules.elmo_files import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE


@TokenEmbedder.register("elmo_multi_token_embedder")
class ElmoMultiTokenEmbedder(TokenEmbedder):
    """
    Several ELMo representations of each token, side by side, each with scalar weights of its own;
    the language model runs once. For models with ELMo in more than one place: see
    `ElmoOutputEncoder`.

    Registered as `elmo_multi_token_embedder`.

    # Parameters

    options_file, weight_file : `str`, optional
        As for `ElmoTokenEmbedder`.
    num_output_representations : `int`, optional (default = `2`)
    do_layer_norm, dropout, requires_grad, initial_state, precision, max_cached_words : optional
        As for `ElmoTokenEmbedder`.
    """

    def __init__(
        self,
        options_file: str = DEFAULT_OPTIONS_FILE,
        weight_file: str = DEFAULT_WEIGHT_FILE,
        num_output_representations: int = 2,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        initial_state: str = "carried",
        precision: str = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            num_output_representations,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            initial_state=initial_state,
            precision=precision,
            max_cached_words=max_cached_words,
        )
        self._output_dim: int = num_output_representations * self._elmo.get_output_dim()

    def get_output_dim(self) -> int:
        """The size of all representations of one token."""
        return self._output_dim

    def forward(
        self, elmo_tokens: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """
        # Parameters

        elmo_tokens : `torch.Tensor`
            Character ids, shape `(batch_size, ..., timesteps, 50)`, 0 where padded.
        word_inputs : `torch.Tensor`, optional
            Positions of the words in `vocab_to_cache`, shape `(batch_size, ..., timesteps)`.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, ..., timesteps, output_dim)`.
        """
        # Each of shape (batch_size, ..., timesteps, output_dim / num_output_representations)
        representations = self._elmo(elmo_tokens, word_inputs)["elmo_representations"]
        return torch.cat(representations, dim=-1)
