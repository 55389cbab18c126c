from typing import Any, Dict, List, Sequence

import torch
from allennlp.data.fields import Field

from allennlp_elmo_plugin.bilm.characters import CharacterTable


class CharacterIdsField(Field[torch.Tensor]):
    """
    Words as character ids, without the `TextField`, `Token` and token indexer of each word: a row
    of a window is cheap to make, and its tensor is what the language model reads.

    # Parameters

    words : `Sequence[str]`
    table : `CharacterTable`
        Shared by all fields of a dataset reader.
    num_steps : `int`, optional (default = `0`)
        The tensor has at least so many positions.
    """

    __slots__ = ["num_steps", "table", "words"]

    def __init__(self, words: Sequence[str], table: CharacterTable, num_steps: int = 0) -> None:
        self.words = words
        self.table = table
        self.num_steps = num_steps

    def get_padding_lengths(self) -> Dict[str, int]:
        return {"num_words": max(len(self.words), self.num_steps)}

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        """
        # Returns

        `torch.Tensor`
            int64, shape (num_words, max_characters), 0 where padded.
        """
        rows = torch.from_numpy(self.table.lookup(self.words))  # (words, max_characters), int16
        length = padding_lengths["num_words"]
        if length == len(rows):
            return rows.long()
        padded = torch.zeros(length, self.table.max_characters, dtype=torch.long)
        padded[: len(rows)] = rows
        return padded

    def empty_field(self) -> "CharacterIdsField":
        return CharacterIdsField([], self.table)

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, CharacterIdsField):
            return NotImplemented
        return list(self.words) == list(other.words) and self.num_steps == other.num_steps

    def __str__(self) -> str:
        return f"CharacterIdsField with words: {' '.join(self.words)}"

    def human_readable_repr(self) -> List[str]:
        return list(self.words)
