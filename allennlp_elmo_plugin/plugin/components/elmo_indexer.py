"""AllenNLP's indexer `elmo_characters`, made faster."""

import functools
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from allennlp.data.token_indexers import TokenIndexer, elmo_indexer
from allennlp.data.token_indexers.token_indexer import IndexedTokenList
from allennlp.data.tokenizers import Token
from allennlp.data.vocabulary import Vocabulary
from torch.nn.functional import pad

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, CharacterTable
from allennlp_elmo_plugin.plugin.registration import override_registered


class CharacterIds(Sequence):
    """An array of character ids, shape `(words, 50)`, where AllenNLP expects a list of lists."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index].tolist()

    def __eq__(self, other: Any) -> bool:
        return self[:] == other[:]


@functools.cache
def _table(tokens_to_add: tuple[tuple[str, int], ...]) -> CharacterTable:
    """Return the table that all indexers with these special tokens share."""
    return CharacterTable(MAX_CHARACTERS_PER_TOKEN, dict(tokens_to_add))


@override_registered(TokenIndexer, "elmo_characters")
class ELMoTokenCharactersIndexer(elmo_indexer.ELMoTokenCharactersIndexer):
    """
    Tokens as character ids for ELMo. It has the arguments of AllenNLP's indexer and makes the same
    tensors, but spells each word only once.

    # Parameters

    tokens_to_add : `Dict[str, int]`, optional (default = `None`)
        Words that are one special character, with its id, below 261. If the model was not trained
        with it, choose one that does not occur in the text, such as 1 to 32.
    namespace_to_cache : `str`, optional (default = `None`)
        A namespace of the vocabulary, to which the words are added. Their ids in it are
        `word_inputs` for an `elmo_token_embedder` with the same `namespace_to_cache`.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: dict[str, int] = None,  # type: ignore[assignment]
        token_min_padding_length: int = 0,
        namespace_to_cache: Optional[str] = None,
    ) -> None:
        super().__init__(namespace, tokens_to_add, token_min_padding_length)
        self._namespace_to_cache = namespace_to_cache
        self._tokens_to_add = tuple((tokens_to_add or {}).items())

    def count_vocab_items(self, token: Token, counter: dict[str, dict[str, int]]) -> None:
        if self._namespace_to_cache is not None:
            counter[self._namespace_to_cache][token.ensure_text()] += 1

    def get_empty_token_list(self) -> IndexedTokenList:
        empty: IndexedTokenList = {"elmo_tokens": []}
        if self._namespace_to_cache is not None:
            empty["word_inputs"] = []
        return empty

    def tokens_to_indices(self, tokens: list[Token], vocabulary: Vocabulary) -> dict[str, Any]:
        """Return `elmo_tokens`, 50 ids a token, and for `namespace_to_cache` `word_inputs`."""
        words = [token.ensure_text() for token in tokens]
        array = _table(self._tokens_to_add).lookup(words)
        indices: dict[str, Any] = {"elmo_tokens": CharacterIds(array)}
        if self._namespace_to_cache is not None:
            ids = vocabulary.get_token_to_index_vocabulary(self._namespace_to_cache)
            # A batch with -1, for a word without a cached vector, is computed from characters.
            indices["word_inputs"] = [ids.get(word, -1) for word in words]
        return indices

    def as_padded_tensor_dict(
        self, tokens: IndexedTokenList, padding_lengths: dict[str, int]
    ) -> dict[str, torch.Tensor]:
        """Return int64 tensors, shapes `(length, 50)` and `(length,)`, with 0 for padding."""
        ids = tokens["elmo_tokens"]
        # An empty field has a plain list, as do fields that were indexed by AllenNLP's class.
        array = ids.array if isinstance(ids, CharacterIds) else np.array(ids, dtype=np.int16)
        array = array.reshape(-1, MAX_CHARACTERS_PER_TOKEN)
        n_missing = padding_lengths["elmo_tokens"] - len(array)  # If negative, `pad` cuts.
        tensors = {"elmo_tokens": pad(torch.from_numpy(array).long(), (0, 0, 0, n_missing))}
        if self._namespace_to_cache is not None:
            word_ids = torch.tensor(tokens["word_inputs"], dtype=torch.long)
            tensors["word_inputs"] = pad(word_ids, (0, n_missing))
        return tensors
