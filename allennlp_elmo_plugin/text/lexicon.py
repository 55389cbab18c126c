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

_SHORT = 15
_N_SLOTS_LOG2 = 19
# By the number of bytes of a word: the bits that they have in an integer of 64 bits.
_MASKS = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Lexicon:
    """
    The distinct words of a text, numbered as they are seen. `max_characters`, the length of a row
    of character ids, and `word_ids`, those of the vocabulary, are needed only for ids of words.
    """

    def __init__(
        self, max_characters: int | None = None, word_ids: Mapping[str, int] | None = None
    ) -> None:
        self._max_characters = max_characters
        self._word_ids = word_ids
        self.streams: Any = weakref.WeakSet()  # Their `text` has numbers of this lexicon.
        self._start()

    def _start(self) -> None:
        """Start without words."""
        self._numbers: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        for word in (_LINE_END, BEGIN_SENTENCE_WORD.encode(), END_SENTENCE_WORD.encode()):
            self._numbers[word]
        # A short word for each slot, as two integers, and its number.
        self._slots = np.zeros((2**_N_SLOTS_LOG2, 3), dtype=np.uint64)
        # The ids of the first `_n_learnt` words, by the word's number.
        self._n_learnt = 1
        self._characters = np.zeros((1, self._max_characters or 0), dtype=np.int16)
        self._ids = np.full(1, IGNORED_TARGET)

    def number(self, text: bytes) -> np.ndarray:
        """
        Return the numbers of the words in lines that `read_text` yields, and 0 at the end of each
        line: int32, shape (words + lines,).
        """
        text = text.replace(b"\n", b" " + _LINE_END + b" ")
        characters = np.frombuffer(text, dtype=np.uint8)
        is_space = np.ones(len(characters) + 1, dtype=bool)  # as if the text began with one
        # Unsigned numbers below 9 wrap around, so that this is 9 (\t) to 13 (\r).
        is_space[1:] = (characters == ord(" ")) | (characters - np.uint8(ord("\t")) <= 4)
        bounds = np.flatnonzero(is_space[1:] != is_space[:-1])
        starts, ends = bounds[::2], bounds[1::2]
        lengths = ends - starts
        # A word of up to 15 bytes is two integers: its first 8 bytes, and the others with its
        # length. They choose a slot, which keeps the first of its words.
        eights = np.ndarray(len(text) + 8, "<u8", text + bytes(16), strides=(1,))
        low = eights[starts] & _MASKS[np.minimum(lengths, 8)]
        high = eights[starts + 8] & _MASKS[np.clip(lengths - 8, 0, 7)]
        high |= np.minimum(lengths, _SHORT + 1).astype(np.uint64) << np.uint64(56)
        mixed = (low ^ high * _MULTIPLIER) * _MULTIPLIER
        slots = (mixed >> np.uint64(64 - _N_SLOTS_LOG2)).astype(np.intp)
        stored = self._slots.take(slots, axis=0)
        numbers = stored[:, 2].astype(np.int32)
        missed = np.flatnonzero((stored[:, 0] != low) | (stored[:, 1] != high))
        words = map(text.__getitem__, map(slice, starts[missed].tolist(), ends[missed].tolist()))
        numbers[missed] = list(map(self._numbers.__getitem__, words))  # new words get the next ones
        new = missed[(lengths[missed] <= _SHORT) & (stored[missed, 1] == 0)]
        self._slots[slots[new]] = np.stack(
            [low[new], high[new], numbers[new].astype(np.uint64)], axis=1
        )
        return numbers

    def forget(self) -> None:
        """Forget all words but those of the streams if more than 2**19, or 130 MB, are known."""
        if len(self._numbers) <= MAX_WORDS:
            return
        words = list(self._numbers)
        self._start()
        for stream in self.streams:
            numbers = [self._numbers[words[number]] for number in stream.text.tolist()]
            stream.text = np.array(numbers, dtype=np.int32)

    def character_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """Return character ids, 0 for the padding: int16, shape (len(numbers), max_characters)."""
        self._learn()
        return torch.from_numpy(self._characters.take(numbers, axis=0))

    def vocabulary_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """Return ids of `lm_tokens`, -100 for the padding: int64, with the shape of numbers."""
        self._learn()
        return torch.from_numpy(self._ids.take(numbers))

    def _learn(self) -> None:
        """Make the ids of the words that came after the first `_n_learnt`."""
        n_words = len(self._numbers)
        if n_words == self._n_learnt:
            return
        if n_words > len(self._ids):
            n_rows = n_words + 2**14
            self._ids.resize(n_rows, refcheck=False)
            self._characters.resize((n_rows, self._characters.shape[1]), refcheck=False)
        new = itertools.islice(reversed(self._numbers), n_words - self._n_learnt)
        words: list[str] = [word.decode() for word in new][::-1]
        rows = slice(self._n_learnt, n_words)
        if self._max_characters is not None:
            self._characters[rows] = words_to_character_ids(words, self._max_characters)
        ids = self._word_ids
        if ids is not None:
            self._ids[rows] = [ids.get(word, ids[UNKNOWN_WORD]) for word in words]
        self._n_learnt = n_words
