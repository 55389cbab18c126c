"""The token layer of ELMoForManyLangs, which embeds words, and the code points of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.character_encoder import WORDS_AT_ONCE
from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE, END_SENTENCE
from allennlp_elmo_plugin.bilm.kernels.matrix_product import padded_rows
from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.pretrained.checkpoints import many_langs
from allennlp_elmo_plugin.pretrained.find_model import ModelFiles

# No UTF-8 and no row of character ids begins with it.
_WORD = b"\xff"


class ManyLangsEncoder(ElmoCharacterEncoder):
    """
    An `ElmoCharacterEncoder` whose characters are code points in a dictionary, and which adds the
    embeddings of words in another one. `embed_words` reads words exactly; of character ids, the
    bytes are decoded. A call makes tables only for its own characters, as there may be 17,000.
    """

    boundary_words = (many_langs.BEGIN_SENTENCE, many_langs.END_SENTENCE)
    keeps_tables = False
    _word_embedding_weights: torch.Tensor

    def _make(self, options: Any, files: ModelFiles, requires_grad: bool) -> None:
        super()._make(options, files, requires_grad)
        assert isinstance(options, many_langs.ManyLangsOptions)
        self._dictionaries = options.words, options.characters
        self._max_characters = options.max_characters
        shapes = {
            "_char_embedding_weights": options.character_shape,
            "_word_embedding_weights": options.word_shape,
        }
        for name, shape in shapes.items():
            self._parameters.pop(name, None)
            if all(shape):
                table = torch.nn.Parameter(torch.empty(shape, device="meta"))
                self.register_parameter(name, table)
            else:  # It is in no file.
                self.register_buffer(name, torch.empty(0), persistent=False)
        n_columns = options.word_shape[1] + self.options.n_filters
        self._projection = torch.nn.Linear(n_columns, self.output_dim, device="meta")
        self.requires_grad_(requires_grad)

    @property
    def weights(self) -> list[torch.Tensor]:
        return [*super().weights, self._word_embedding_weights]

    @model_call
    def embed_words(self, words: Sequence[str]) -> torch.Tensor:
        return self._embed([_WORD + word.encode("utf-8", "surrogatepass") for word in words])

    def _encode(self, spellings: list[bytes], prepared: Any) -> torch.Tensor:
        words = [_word_of(spelling)[: self._max_characters - 2] for spelling in spellings]
        starts = range(0, max(1, len(words)), WORDS_AT_ONCE)
        parts = [words[start : start + WORDS_AT_ONCE] for start in starts]
        return torch.cat([self._encode_words(part, prepared) for part in parts])

    def _encode_words(self, words: list[str], prepared: Any) -> torch.Tensor:
        device, (word_ids, _) = self._word_embedding_weights.device, self._dictionaries
        of_words = None
        if word_ids:
            unknown = word_ids[many_langs.UNKNOWN]
            found = [word_ids.get(word, unknown) for word in words]
            rows = torch.tensor(found, dtype=torch.long, device="cpu")
            of_words = self._word_embedding_weights[rows.to(device)]  # (len(words), word_dim)
            if not self.options.filters:
                return self._linear(-1, padded_rows(of_words), prepared)[: len(words)]
        ids, distinct = self._character_ids(words)
        tables = self._tables(self._char_embedding_weights[distinct.to(device)])
        return self.encode(ids.to(device), prepared, tables, 0, of_words)

    def _character_ids(self, words: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Return the characters of words, shape `(len(words), max_characters)`, as places in a tensor
        of distinct ids, shape `(n_distinct,)`, where the padding's is the first.
        """
        _, ids = self._dictionaries
        first, last = ids[many_langs.FIRST], ids[many_langs.LAST]
        unknown, padding = ids[many_langs.UNKNOWN], ids[many_langs.PADDING]
        places = {padding: 0}
        rows = np.zeros((len(words), self._max_characters), dtype=np.int64)
        for row, word in zip(rows, words):
            characters = [word] if word in self.boundary_words else word
            spelled = [first, *(ids.get(each, unknown) for each in characters), last]
            row[: len(spelled)] = [places.setdefault(each, len(places)) for each in spelled]
        distinct = torch.tensor(list(places), dtype=torch.long, device="cpu")
        return torch.from_numpy(rows), distinct


def _word_of(spelling: bytes) -> str:
    """Return a word from what `embed_words` made of it, or from a row of character ids."""
    if spelling.startswith(_WORD):
        return spelling[1:].decode("utf-8", "surrogatepass")
    ids = np.frombuffer(spelling, dtype=np.int16) - 1
    if ids[1] in (BEGIN_SENTENCE, END_SENTENCE):
        return ManyLangsEncoder.boundary_words[ids[1] - BEGIN_SENTENCE]
    # The last letter may be cut.
    return bytes(ids[(ids >= 0) & (ids < 256)].tolist()).decode("utf-8", "ignore")
