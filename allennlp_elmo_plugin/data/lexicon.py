"""
Words as numbers. A text is read as arrays of numbers, and what a model reads in place of a word,
its character ids and its vocabulary id, is made once for each distinct word.
"""

import itertools
from collections import defaultdict
from typing import DefaultDict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import torch
from allennlp.data.vocabulary import Vocabulary

from allennlp_elmo_plugin.bilm.characters import (
    BEGIN_SENTENCE_WORD,
    END_SENTENCE_WORD,
    words_to_character_ids,
)
from allennlp_elmo_plugin.data.vocabulary import lookup_ids
from allennlp_elmo_plugin.files.text_lines import find_words

PADDING_NUMBER, BEGIN_SENTENCE_NUMBER, END_SENTENCE_NUMBER = range(3)

IGNORED_TARGET = -100
"""The target at positions after the last word; torch's losses leave it out."""

MAX_WORDS = 2**19
MAX_BYTES = 2**25

_N_SLOTS_LOG2 = 20
# By the number of bytes of a word: the bits that they have in an integer of 64 bits.
_MASKS = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
_SHORT = 15
_MULTIPLIERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Lexicon:
    """
    The distinct words of a text, numbered as they are seen. 0 is the padding, which isn't a word.

    Rule: everything here depends on the arguments and on the words seen so far. The streams of one
    pass over a text use it, and `forget` words together when it `is_full`: numbers from before are
    then void.

    # Parameters

    max_characters : `int`, optional (default = `None`)
        The length of a row of character ids. `None` if they aren't needed.
    vocab : `Vocabulary`, optional (default = `None`)
        With the namespace `lm_tokens`. `None` if vocabulary ids aren't needed.
    """

    def __init__(
        self, max_characters: Optional[int] = None, vocab: Optional[Vocabulary] = None
    ) -> None:
        self._max_characters = max_characters
        self._vocab = vocab
        self._words = [b""]  # by number
        self._n_bytes = 0
        self._numbers: DefaultDict[bytes, int] = defaultdict(itertools.count(1).__next__)
        self.number_words([BEGIN_SENTENCE_WORD, END_SENTENCE_WORD])
        # Most words have up to 15 bytes. These and the length are two integers, `_keys`, which
        # choose a slot; it has the number of one such word. All other words are in `_numbers` only.
        self._keys = np.zeros((2, 2**_N_SLOTS_LOG2), dtype=np.uint64)
        self._slots = np.zeros(2**_N_SLOTS_LOG2, dtype=np.int32)
        # Of the first `_n_learnt` words, by number.
        self._n_learnt = 1
        self._characters = np.zeros((1, max_characters or 0), dtype=np.int16)
        self._ids = np.full(1, IGNORED_TARGET)

    @property
    def is_full(self) -> bool:
        """Whether there are more than 2**19 words, which need 160 MB, or 32 MB of their bytes."""
        return len(self._words) > MAX_WORDS or self._n_bytes > MAX_BYTES

    def forget(self) -> None:
        """Forget the second half of the words: the frequent ones come first in most texts."""
        n_kept = max(END_SENTENCE_NUMBER + 1, len(self._words) // 2)
        for word in self._words[n_kept:]:
            del self._numbers[word]
        del self._words[n_kept:]
        self._n_bytes = sum(map(len, self._words))
        self._numbers.default_factory = itertools.count(n_kept).__next__
        self._slots[self._slots >= n_kept] = 0
        self._n_learnt = min(self._n_learnt, n_kept)

    def words(self, numbers: np.ndarray) -> List[str]:
        """Return the words of numbers, shape (words,)."""
        words = self._words
        return [words[number].decode() for number in numbers.tolist()]

    def number_words(self, words: Sequence[str]) -> np.ndarray:
        """Return the numbers of words, int32, shape (words,)."""
        return self._number([word.encode() for word in words], len(words))

    def _number(self, words: Iterable[bytes], n_words: int) -> np.ndarray:
        found = map(self._numbers.__getitem__, words)  # a new word gets the next number
        numbers = np.fromiter(found, dtype=np.int32, count=n_words)
        n_new = len(self._numbers) + 1 - len(self._words)
        new = list(itertools.islice(reversed(self._numbers), n_new))
        self._words += reversed(new)
        self._n_bytes += sum(map(len, new))
        return numbers

    def number_text(self, text: bytes) -> Tuple[np.ndarray, np.ndarray]:
        """
        # Parameters

        text : `bytes`
            Whole lines in UTF-8, as `join_lines` returns them.

        # Returns

        `Tuple[np.ndarray, np.ndarray]`
            The numbers of the words, int32, shape (words,), and how many words each line has, shape
            (lines,).
        """
        starts, ends, n_words = find_words(text)
        n_bytes = ends - starts
        # The 8 bytes that start at each byte of the text.
        eights = np.ndarray(len(text) + 8, "<u8", text + bytes(16), strides=(1,))
        low = eights[starts] & _MASKS[np.minimum(n_bytes, 8)]
        high = n_bytes.astype(np.uint64) << np.uint64(56)
        longer = np.flatnonzero(n_bytes > 8)
        high[longer] |= eights[starts[longer] + 8] & _MASKS[np.minimum(n_bytes[longer] - 8, 7)]

        mixed = low * _MULTIPLIERS[0] ^ high * _MULTIPLIERS[1]
        mixed = (mixed ^ mixed >> np.uint64(32)) * _MULTIPLIERS[0]
        slots = (mixed >> np.uint64(64 - _N_SLOTS_LOG2)).astype(np.intp)
        numbers = self._slots.take(slots)
        is_short = n_bytes <= _SHORT
        is_key = (self._keys[0].take(slots) == low) & (self._keys[1].take(slots) == high)

        others = np.flatnonzero(~(is_key & is_short & (numbers > 0)))
        spans = map(slice, starts[others].tolist(), ends[others].tolist())
        numbers[others] = self._number(map(text.__getitem__, spans), len(others))
        new = others[is_short[others] & (self._slots[slots[others]] == 0)]
        free, first = np.unique(slots[new], return_index=True)
        self._keys[0, free], self._keys[1, free] = low[new[first]], high[new[first]]
        self._slots[free] = numbers[new[first]]
        return numbers, n_words

    def character_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """
        Return ids from 1 to 261, and 0 for the padding: int64, shape (*numbers, max_characters).
        """
        self._learn()
        rows = torch.from_numpy(self._characters)
        rows = rows.index_select(0, torch.from_numpy(numbers.reshape(-1)))
        return rows.long().view(*numbers.shape, -1)

    def vocabulary_ids(self, numbers: np.ndarray) -> torch.Tensor:
        """Return ids of `lm_tokens`, and -100 for the padding: int64, with the shape of numbers."""
        self._learn()
        return torch.from_numpy(self._ids.take(numbers))

    def _learn(self) -> None:
        """Make the ids of the words that came after the first `_n_learnt`."""
        new = slice(self._n_learnt, len(self._words))
        if new.start == new.stop:
            return
        if new.stop > len(self._ids):
            for name in ("_characters", "_ids"):
                known = getattr(self, name)
                # The memory of rows without a word yet is not used.
                larger = np.zeros((2 * new.stop, *known.shape[1:]), dtype=known.dtype)
                larger[: new.start] = known[: new.start]
                setattr(self, name, larger)
        words = [word.decode() for word in self._words[new]]
        if self._max_characters is not None:
            self._characters[new] = words_to_character_ids(words, self._max_characters)
        if self._vocab is not None:
            self._ids[new] = lookup_ids(words, self._vocab)
        self._n_learnt = new.stop
