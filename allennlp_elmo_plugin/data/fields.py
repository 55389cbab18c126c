"""
Fields of a window of text, for AllenNLP's own data loader. They make tensors of words without its
`TextField`, tokens and indexers.
"""

from typing import Dict, List, Optional, Sequence

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data.fields import Field
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.characters import CharacterTable
from allennlp_elmo_plugin.data.vocabulary import lookup_ids
from allennlp_elmo_plugin.data.windows import TextPosition


class _WordsField(Field[torch.Tensor]):
    """Words, padded to `num_steps` at least."""

    __slots__ = ["num_steps", "words"]

    def __init__(self, words: Sequence[str], num_steps: int) -> None:
        self.words = words
        self.num_steps = num_steps

    def get_padding_lengths(self) -> Dict[str, int]:
        return {"num_words": max(len(self.words), self.num_steps)}

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        return f"{type(self).__name__} with words: {' '.join(self.words)}"

    def human_readable_repr(self) -> List[str]:
        return list(self.words)


class CharacterIdsField(_WordsField):
    """Words as character ids, from a table that all fields of a dataset reader share."""

    __slots__ = ["table"]

    def __init__(self, words: Sequence[str], table: CharacterTable, num_steps: int = 0) -> None:
        super().__init__(words, num_steps)
        self.table = table

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        """Return the ids, int64, shape (num_words, max_characters), 0 where padded."""
        rows = torch.from_numpy(self.table.lookup(self.words))  # (words, max_characters), int16
        length = padding_lengths["num_words"]
        if length == len(rows):
            return rows.long()
        padded = torch.zeros(length, self.table.max_characters, dtype=torch.long)
        padded[: len(rows)] = rows
        return padded


class VocabularyIdsField(_WordsField):
    """
    Words as ids of a namespace with bilm-tf's unknown word, `<UNK>`, and `padding_value` after the
    last word.
    """

    __slots__ = ["_ids", "namespace", "padding_value"]

    def __init__(
        self, words: Sequence[str], namespace: str, padding_value: int = 0, num_steps: int = 0
    ) -> None:
        super().__init__(words, num_steps)
        self.namespace = namespace
        self.padding_value = padding_value
        self._ids: Optional[List[int]] = None

    def index(self, vocab: Vocabulary) -> None:
        self._ids = lookup_ids(self.words, vocab, self.namespace)

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        """Return the ids, int64, shape (num_words,)."""
        if self._ids is None:
            raise ConfigurationError("Call index(vocab) on a VocabularyIdsField before as_tensor")
        padding = [self.padding_value] * (padding_lengths["num_words"] - len(self._ids))
        return torch.tensor(self._ids + padding, dtype=torch.long)  # (num_words,)


class WindowField(Field[torch.Tensor]):
    """
    The place of a row, which `check_window_order` checks: the number of the window in the pass over
    the data, the row in the batch, both from 0, and the number of rows that belong together. The
    last row of a window has the `position` of the reader after it, for the data loader.
    """

    __slots__ = ["batch_size", "number", "position", "row"]

    def __init__(
        self, number: int, row: int, batch_size: int, position: Optional[TextPosition] = None
    ) -> None:
        self.number = number
        self.row = row
        self.batch_size = batch_size
        self.position = position

    def get_padding_lengths(self) -> Dict[str, int]:
        return {}

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        return torch.tensor([self.number, self.row, self.batch_size])  # (3,)

    def human_readable_repr(self) -> List[int]:
        return [self.number, self.row, self.batch_size]
