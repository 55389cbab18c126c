"""
Words as numbers. A text is read as arrays of numbers; the character ids and the vocabulary id of a
word are made once.
"""

import itertools
import weakref
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    words_to_character_ids,
)
from allennlp_elmo_plugin.text.vocabulary import UNKNOWN_WORD

LINE_END, BEGIN_SENTENCE, END_SENTENCE = range(3)  # The first is also the padding.

IGNORED_TARGET = -100  # at positions after the last word; torch's losses leave it out

MAX_WORDS = 2**19

_LINE_END = b"\xff"  # not UTF-8, so that no word is like it


class WordIds:
    """
    The distinct words of a text, numbered as they are seen. `max_characters`, the length of a row
    of character ids, and `vocabulary`, the ids of its words, are needed only for ids of words.
    """

    def __init__(
        self, max_characters: int | None = None, vocabulary: Mapping[str, int] | None = None
    ) -> None:
        self._max_characters = max_characters
        self._vocabulary = vocabulary
        # Their `text` has numbers from here. In order, on which the next numbers depend.
        self.streams: Any = weakref.WeakValueDictionary()
        self._start()

    def _start(self) -> None:
        """Start without words."""
        # New words get the next numbers.
        self._numbers: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        self._numbers[_LINE_END]
        # By the number of a word, with some rows for words to come
        self._characters = np.zeros((1, self._max_characters or 0), dtype=np.int16)
        self._ids = np.full(1, IGNORED_TARGET)
        self._number([BEGIN_SENTENCE_WORD.encode(), END_SENTENCE_WORD.encode()])

    def number(self, text: bytes) -> np.ndarray:
        """
        Return the numbers of the words in lines that `read_text` yields, and 0 at the end of each
        line: int32, shape (words + lines,).
        """
        return self._number(text.replace(b"\n", b" " + _LINE_END + b" ").split())

    def _number(self, words: list[bytes]) -> np.ndarray:
        n_known = len(self._numbers)
        of_words = map(self._numbers.__getitem__, words)
        numbers = np.fromiter(of_words, dtype=np.int32, count=len(words))
        n_words = len(self._numbers)
        if n_words > len(self._ids):
            n_rows = n_words + 2**14
            self._ids.resize(n_rows, refcheck=False)
            self._characters.resize((n_rows, self._characters.shape[1]), refcheck=False)
        last_first = itertools.islice(reversed(self._numbers), n_words - n_known)
        new = [word.decode() for word in last_first][::-1]
        if self._max_characters is not None:
            self._characters[n_known:n_words] = words_to_character_ids(new, self._max_characters)
        ids = self._vocabulary
        if ids is not None:
            self._ids[n_known:n_words] = [ids.get(word, ids[UNKNOWN_WORD]) for word in new]
        return numbers

    def forget(self) -> None:
        """Forget all words but those of the streams if more than 2**19, or 130 MB, are known."""
        if len(self._numbers) > MAX_WORDS:
            words = list(self._numbers)
            self._start()
            for stream in self.streams.values():
                stream.text = self._number([words[number] for number in stream.text.tolist()])

    def character_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """Return character ids, 0 for the padding: int16, shape (len(numbers), max_characters)."""
        return torch.from_numpy(self._characters.take(numbers, axis=0))

    def vocabulary_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """Return ids of `lm_tokens`, -100 for the padding: int64, with the shape of numbers."""
        return torch.from_numpy(self._ids.take(numbers))
