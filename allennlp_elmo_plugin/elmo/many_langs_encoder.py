"""The token layer of ELMoForManyLangs, which embeds words and the code points of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.character_encoder import WORDS_AT_ONCE, EncoderWeights
from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE, END_SENTENCE
from allennlp_elmo_plugin.bilm.kernels.matrix_product import padded_rows
from allennlp_elmo_plugin.bilm.model_call import model_call
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.pretrained.checkpoints import many_langs

# Neither UTF-8 nor a row of character ids begins with this byte.
_WORD = b"\xff"


class ManyLangsEncoder(ElmoCharacterEncoder):
    """
    An `ElmoCharacterEncoder` that looks up code points in a dictionary, and whole words in another
    one. `embed_words` reads words exactly; character ids are decoded as bytes. A call makes tables
    only for its own characters, as a dictionary may have 17,000.
    """

    boundary_words = (many_langs.BEGIN_SENTENCE, many_langs.END_SENTENCE)
    keeps_tables = False
    reads_bytes = False
    _word_embedding_weights: torch.Tensor

    def __init__(
        self, options_file: None, weight_file: None, requires_grad: bool, opened: tuple[Any, Any]
    ) -> None:
        super().__init__(options_file, weight_file, requires_grad, opened)
        options, _ = opened
        self._words, self._characters = options.words, options.characters
        self._max_characters = options.max_characters
        del self._char_embedding_weights
        names = "_char_embedding_weights", "_word_embedding_weights"
        for name, shape in zip(names, (options.character_shape, options.word_shape)):
            if all(shape):
                self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device="meta")))
            else:  # It is in no file.
                self.register_buffer(name, torch.empty(0), persistent=False)
        n_columns = options.word_shape[1] + self.options.n_filters
        self._projection = torch.nn.Linear(n_columns, self.output_dim, device="meta")

    @property
    def weights(self) -> list[torch.Tensor]:
        return [*super().weights, self._word_embedding_weights]

    @model_call
    def embed_words(self, words: Sequence[str]) -> torch.Tensor:
        return self._embed(list(map(spelling_of, words)))

    def _spelled(self, spellings: list[bytes], weights: EncoderWeights) -> torch.Tensor:
        decoded = (word_of(spelling, self.boundary_words) for spelling in spellings)
        words = [word[: self._max_characters - 2] for word in decoded]
        starts = range(0, max(1, len(words)), WORDS_AT_ONCE)
        parts = (words[start : start + WORDS_AT_ONCE] for start in starts)
        return torch.cat([self._encode_words(part, weights) for part in parts])

    def _encode_words(self, words: list[str], weights: EncoderWeights) -> torch.Tensor:
        device, of_words = self._word_embedding_weights.device, None
        if self._words:
            unknown = self._words[many_langs.UNKNOWN]
            word_ids = [self._words.get(word, unknown) for word in words]
            rows = torch.tensor(word_ids, dtype=torch.long, device="cpu")
            of_words = self._word_embedding_weights[rows.to(device)]  # (len(words), word_dim)
            if not self.options.filters:
                return weights.linear[-1](padded_rows(of_words))[: len(words)]
        ids, distinct = self._character_ids(words)
        tables = self._tables(self._char_embedding_weights[distinct.to(device)])
        return self._encode_part(ids.to(device), weights._replace(tables=tables), 0, of_words)

    def _character_ids(self, words: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Return the characters of words, shape `(len(words), max_characters)`, as places in a tensor
        of distinct ids, shape `(n_distinct,)`, of which the padding's is the first.
        """
        keys = many_langs.FIRST, many_langs.LAST, many_langs.UNKNOWN, many_langs.PADDING
        first, last, unknown, padding = map(self._characters.__getitem__, keys)
        places = {padding: 0}
        rows = np.zeros((len(words), self._max_characters), dtype=np.int64)
        for row, word in zip(rows, words):
            characters = [word] if word in self.boundary_words else word
            ids = [first, *(self._characters.get(key, unknown) for key in characters), last]
            row[: len(ids)] = [places.setdefault(number, len(places)) for number in ids]
        distinct = torch.tensor(list(places), dtype=torch.long, device="cpu")
        return torch.from_numpy(rows), distinct


def spelling_of(word: str) -> bytes:
    """Return a word as bytes, which are no row of character ids."""
    return _WORD + word.encode("utf-8", "surrogatepass")


def word_of(spelling: bytes, boundary_words: Sequence[str]) -> str:
    """Return the word of which these are `spelling_of`, or that a row of character ids spells."""
    if spelling.startswith(_WORD):
        return spelling[1:].decode("utf-8", "surrogatepass")
    ids = np.frombuffer(spelling, dtype=np.int16) - 1
    if ids[1] in (BEGIN_SENTENCE, END_SENTENCE):
        return boundary_words[ids[1] - BEGIN_SENTENCE]
    # The last letter may be cut.
    return bytes(ids[(ids >= 0) & (ids < 256)].tolist()).decode("utf-8", "ignore")
