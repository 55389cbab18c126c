"""The character encoder: a word's vector from its characters, without context."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.cached_value import CachedValue, CachingModule, WordCache
from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    N_CHARACTERS,
    PADDING,
    CharacterTable,
)
from allennlp_elmo_plugin.bilm.kernels.dispatch import ngrams_for
from allennlp_elmo_plugin.bilm.kernels.matrix_product import linear_layer, padded_rows
from allennlp_elmo_plugin.bilm.model_call import check_layers, copy_to, model_call, needs_grad
from allennlp_elmo_plugin.bilm.options import CharCnnOptions

# How many words are encoded at a time
WORDS_AT_ONCE = 4096

_LAYERS = torch.nn.Conv1d, torch.nn.Linear, torch.nn.ModuleDict, torch.nn.ModuleList


class EncoderWeights(NamedTuple):
    """What is computed from the parameters before any word, and the vectors of words to keep."""

    tables: list[torch.Tensor]  # of characters, for the convolutions
    linear: list[Callable[[torch.Tensor], torch.Tensor]]  # highway layers and projection
    words: WordCache


class CharacterEncoder(CachingModule):
    """
    Computes word vectors from characters, as bilm-tf's `char_cnn` does: character embeddings,
    convolutions, the maximum over positions, highway layers and a projection, by default only if
    the number of filters is not `output_dim` (Kim et al. 2016; Jozefowicz et al. 2016).

    Parameters have the names and shapes of AllenNLP's `_ElmoCharacterEncoder`. Its highway gate is
    the share of the input to keep, while bilm-tf's is the share to replace, so bilm-tf's carry
    weights have the opposite sign.
    """

    boundary_words = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD)
    keeps_tables = True

    def __init__(
        self,
        options: CharCnnOptions,
        output_dim: int,
        project: bool | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.output_dim = output_dim
        dim, n_filters = options.embedding_dim, options.n_filters
        characters = torch.empty(N_CHARACTERS, dim, device=device)
        self._char_embedding_weights = torch.nn.Parameter(characters)
        for i, (width, number) in enumerate(options.filters):
            convolution = torch.nn.Conv1d(dim, number, width, device=device)
            self.add_module(f"char_conv_{i}", convolution)
        sizes = [(n_filters, 2 * n_filters)] * options.n_highway
        highways = (torch.nn.Linear(*size, device=device) for size in sizes)
        self._highways = torch.nn.ModuleDict({"_layers": torch.nn.ModuleList(highways)})
        self._projection = None
        if n_filters != output_dim if project is None else project:
            self._projection = torch.nn.Linear(n_filters, output_dim, device=device)
        # How many words' vectors are kept from batch to batch, where no gradient is needed
        self.max_cached_words = 0
        self.precision = "float32"
        self._table = CharacterTable(options.max_characters_per_token)
        self._prepared: CachedValue[EncoderWeights] = CachedValue()
        if device != "meta":  # whose parameters get their values when weights are loaded
            self.reset_parameters()

    @property
    def convolutions(self) -> list[torch.nn.Conv1d]:
        return [getattr(self, f"char_conv_{i}") for i in range(len(self.options.filters))]

    @property
    def highway_layers(self) -> list[torch.nn.Linear]:
        return list(self._highways["_layers"].children())  # type: ignore[arg-type]

    @property
    def _linear_layers(self) -> list[torch.nn.Linear]:
        projections = [] if self._projection is None else [self._projection]
        return [*self.highway_layers, *projections]

    def get_output_dim(self) -> int:
        return self.output_dim

    def reset_parameters(self) -> None:
        """Initialise as bilm-tf. Row 0 of the embedding, for padding after sentences, is zero."""
        dim, n_filters = self.options.embedding_dim, self.options.n_filters
        torch.nn.init.uniform_(self._char_embedding_weights, -1.0, 1.0)
        with torch.no_grad():
            self._char_embedding_weights[0] = 0.0
        for convolution, (width, _) in zip(self.convolutions, self.options.filters):
            if self.options.activation == "relu":
                torch.nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                torch.nn.init.normal_(convolution.weight, std=math.sqrt(1.0 / (width * dim)))
            torch.nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        for layer in self._linear_layers:
            torch.nn.init.normal_(layer.weight, std=math.sqrt(1.0 / n_filters))
            torch.nn.init.zeros_(layer.bias)
        for layer in self.highway_layers:
            torch.nn.init.constant_(layer.bias[n_filters:], 2.0)  # -2 in bilm-tf's gate

    @property
    def weights(self) -> list[torch.Tensor]:
        weights: list[Any] = [self._char_embedding_weights]
        for layer in (*self.convolutions, *self._linear_layers):
            weights += [layer.weight, layer.bias]
        return weights

    @model_call
    def forward(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        Return the vectors of words, shape `(n_words, output_dim)`, by their character ids, shape
        `(n_words, max_characters_per_token)`. Equal words, looked for on the CPU, are encoded once.
        """
        rows = character_ids.to("cpu", torch.int16).contiguous().numpy()
        return self._embed(rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel().tolist())

    @model_call
    def embed_words(self, words: Sequence[str]) -> torch.Tensor:
        """Return the vectors of words, shape `(len(words), output_dim)`."""
        return self._embed(self._table.spell(words))

    @model_call
    def encode(self, character_ids: torch.Tensor) -> torch.Tensor:
        """Do what `forward` does without looking for equal words."""
        return self._encode(character_ids, self._weights_of_call())

    def _embed(self, spellings: list[bytes]) -> torch.Tensor:
        weights = self._weights_of_call()
        if weights.words.max_words:
            return weights.words.look_up(spellings, lambda new: self._spelled(new, weights))
        places = {spelling: i for i, spelling in enumerate(dict.fromkeys(spellings))}
        vectors = self._spelled(list(places), weights)  # of each distinct word once
        index = torch.tensor([places[word] for word in spellings], dtype=torch.long, device="cpu")
        return vectors.index_select(0, copy_to(index, vectors.device))

    def _spelled(self, spellings: list[bytes], weights: EncoderWeights) -> torch.Tensor:
        ids = np.frombuffer(bytearray().join(spellings), dtype=np.int16)
        ids = ids.reshape(len(spellings), self.options.max_characters_per_token)
        device = self._char_embedding_weights.device
        return self._encode(copy_to(torch.from_numpy(ids), device), weights)

    def _encode(self, character_ids: torch.Tensor, weights: EncoderWeights) -> torch.Tensor:
        parts = character_ids.to(self._char_embedding_weights.device).split(WORDS_AT_ONCE)
        return torch.cat([self._encode_part(part, weights) for part in parts])

    def keep_words(self, words: Sequence[str]) -> None:
        """Keep the vectors of words for later calls. They count towards `max_cached_words`."""
        with torch.no_grad():
            self.embed_words(words)
            self.word_cache.keep()

    @property
    @torch.no_grad()
    def word_cache(self) -> WordCache:
        return self._weights_of_call().words

    def _weights_of_call(self) -> EncoderWeights:
        """Return what is computed from the parameters, kept where it may be."""
        check_layers(self, *_LAYERS)
        weights = self.weights
        has_gradient = needs_grad(*weights)

        def make() -> EncoderWeights:
            tables = self._tables(self._char_embedding_weights) if self.keeps_tables else []
            layers = self._linear_layers
            linear = [linear_layer(layer, self.precision, has_gradient) for layer in layers]
            max_words = 0 if has_gradient else self.max_cached_words
            return EncoderWeights(tables, linear, WordCache(max_words))

        # On a GPU, checking whether parameters have changed takes longer than it saves.
        if has_gradient or not (self.max_cached_words or weights[0].device.type == "cpu"):
            return make()
        return self._prepared.get(weights, make, (self.precision, self.max_cached_words))

    def _tables(self, embeddings: torch.Tensor) -> list[torch.Tensor]:
        """Return tables for the embeddings of characters, shape `(n_characters, dim)`."""
        weights = [convolution.weight for convolution in self.convolutions]
        return ngrams_for(embeddings).make_tables(embeddings, weights)

    def _encode_part(
        self,
        character_ids: torch.Tensor,
        weights: EncoderWeights,
        padding: int = PADDING + 1,
        words: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Encode at most `WORDS_AT_ONCE` words. Vectors of `words`, shape `(n_words, word_dim)`, which
        bilm-tf doesn't have, come first in the projection's input.
        """
        n_words = character_ids.size(0)
        if n_words == 0:
            return self._char_embedding_weights.new_zeros(0, self.output_dim)
        # (n_filters,)
        biases = torch.cat([convolution.bias for convolution in self.convolutions])  # type: ignore
        filters = self.options.filters, self.options.activation, padding
        kernel = ngrams_for(weights.tables[0])
        # (n_words, n_filters) in this order
        vectors, order = kernel.max_over_ngrams(character_ids, weights.tables, biases, *filters)
        vectors = padded_rows(vectors)  # (n_rows, n_filters)
        for highway in weights.linear[: self.options.n_highway]:
            transformed, gate = highway(vectors).chunk(2, 1)  # (n_rows, n_filters) each
            vectors = torch.lerp(transformed.relu(), vectors, gate.sigmoid())
        if words is not None:
            words = padded_rows(words if order is None else words[order])
            vectors = torch.cat([words, vectors], 1)  # (n_rows, word_dim + n_filters)
        for project in weights.linear[self.options.n_highway :]:
            vectors = project(vectors)  # (n_rows, output_dim)
        vectors = vectors[:n_words]
        return vectors if order is None else vectors[order.argsort()]
