"""`from_params` of `Elmo`, for models of AllenNLP, and their token embedder."""

from typing import Any, Optional

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

# Importing the whole package registers AllenNLP's own class, which must come first to be replaced.
from allennlp.modules.token_embedders import TokenEmbedder

from allennlp_elmo_plugin.elmo.elmo import Elmo
from allennlp_elmo_plugin.elmo.elmo_bilm import MAX_CACHED_WORDS
from allennlp_elmo_plugin.plugin.registration import configuration_errors, override_registered
from allennlp_elmo_plugin.pretrained.find_model import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE


@configuration_errors()
def _from_params(cls: type[Elmo], *args: Any, **kwargs: Any) -> Elmo:
    return FromParams.from_params.__func__(cls, *args, **kwargs)  # type: ignore[attr-defined]


# Configs construct it where models have an argument `elmo: Elmo`.
Elmo.from_params = classmethod(_from_params)  # type: ignore[attr-defined]


@override_registered(TokenEmbedder, "elmo_token_embedder")
class ElmoTokenEmbedder(TokenEmbedder):
    """
    ELMo representations of each token. It shares the arguments, outputs and `state_dict` keys of
    AllenNLP's class: configs and archives made with either work with the other. The files default
    to the published original model. `Elmo` describes the arguments that are not described here.

    # Parameters

    projection_dim : `int`, optional (default = `None`)
        Project the output linearly to this size: all representations of a token together.
    namespace_to_cache : `str`, optional (default = `None`)
        A namespace of the vocabulary whose words are `vocab_to_cache`, as in AllenNLP 0.9. The
        indexer `elmo_characters` with the same `namespace_to_cache` produces the `word_inputs`.
    num_output_representations : `int`, optional (default = `1`)
        How many mixes to concatenate; see `ElmoOutputEncoder` for a use of two.
    """

    @configuration_errors()
    def __init__(
        self,
        options_file: str = DEFAULT_OPTIONS_FILE,
        weight_file: str = DEFAULT_WEIGHT_FILE,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: Optional[int] = None,
        vocab_to_cache: Optional[list[str]] = None,
        scalar_mix_parameters: Optional[list[float]] = None,
        initial_state: str = "carried",
        namespace_to_cache: Optional[str] = None,
        vocab: Optional[Vocabulary] = None,
        precision: str = "float32",
        max_cached_words: int = MAX_CACHED_WORDS,
        num_output_representations: int = 1,
    ) -> None:
        super().__init__()
        if namespace_to_cache is not None:
            if vocab_to_cache is not None:
                raise ConfigurationError("give vocab_to_cache or namespace_to_cache, not both")
            vocab_to_cache = _words_of(vocab, namespace_to_cache)
        self._elmo = Elmo(
            options_file,
            weight_file,
            num_output_representations,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            initial_state=initial_state,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
            max_cached_words=max_cached_words,
        )
        self._projection: Optional[torch.nn.Linear] = None
        self.output_dim: int = num_output_representations * self._elmo.get_output_dim()
        if projection_dim:
            self._projection = torch.nn.Linear(self.output_dim, projection_dim)
            self.output_dim = projection_dim

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(
        self, elmo_tokens: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """
        Return representations, shape `(batch_size, ..., timesteps, output_dim)`, of character ids,
        shape `(batch_size, ..., timesteps, 50)`; see `Elmo.forward`.
        """
        # A list of (batch_size, ..., timesteps, n_directions * projection_dim)
        representations = self._elmo(elmo_tokens, word_inputs)["elmo_representations"]
        output = torch.cat(representations, dim=-1) if representations[1:] else representations[0]
        return output if self._projection is None else self._projection(output)


def _words_of(vocab: Optional[Vocabulary], namespace: str) -> list[str]:
    """Return the words of a namespace in the order of their ids, padding first."""
    if vocab is None or namespace not in vocab.get_namespaces() or not vocab.is_padded(namespace):
        raise ConfigurationError(
            f"namespace_to_cache is {namespace!r}, but no vocabulary has such words: set "
            "namespace_to_cache of the indexer elmo_characters, too"
        )
    words = vocab.get_index_to_token_vocabulary(namespace)
    return [words[i] for i in range(len(words))]
