"""
Words as sequences of character ids: the input side of every character model.

The alphabet is that of bilm-tf: the 256 byte values of UTF-8 and five marks. Training in bilm-tf
uses these 261 ids as they are; prediction adds one to each and keeps 0 for positions after the end
of a sentence. Everything in this package uses the second form, so that one model does both.
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

BEGIN_SENTENCE = 256
END_SENTENCE = 257
BEGIN_WORD = 258
END_WORD = 259
PADDING = 260

MAX_CHARACTERS_PER_TOKEN = 50
N_CHARACTERS = 262
"""The 261 ids above, and 0 for positions after the end of a sentence."""

BEGIN_SENTENCE_WORD = "<S>"
END_SENTENCE_WORD = "</S>"

_SPECIAL_CHARACTERS = {BEGIN_SENTENCE_WORD: BEGIN_SENTENCE, END_SENTENCE_WORD: END_SENTENCE}


def _special_row(character: int, max_characters: int) -> np.ndarray:
    row = np.full(max_characters, PADDING + 1, dtype=np.int16)  # (max_characters,)
    row[:3] = (BEGIN_WORD + 1, character + 1, END_WORD + 1)
    return row


def word_to_character_ids(word: str, max_characters: int = MAX_CHARACTERS_PER_TOKEN) -> np.ndarray:
    """
    Spells a word: begin mark, the bytes of its UTF-8 form, end mark, padding. Bytes over
    `max_characters - 2` are cut off, even inside a character; what UTF-8 can't express (a lone
    surrogate) is left out. `<S>` and `</S>` get their own characters. As bilm-tf does it.

    # Parameters

    word : `str`
    max_characters : `int`, optional (default = `50`)
        The length of the result, at least 3.

    # Returns

    `np.ndarray`
        int16, shape (max_characters,), ids from 1 to 261.
    """
    if max_characters < 3:
        raise ValueError(
            f"max_characters is {max_characters}, but a word needs at least 3: "
            "the begin mark, one byte and the end mark"
        )
    special = _SPECIAL_CHARACTERS.get(word)
    if special is not None:
        return _special_row(special, max_characters)
    row = np.full(max_characters, PADDING + 1, dtype=np.int16)  # (max_characters,)
    spelling = np.frombuffer(word.encode("utf-8", "ignore")[: max_characters - 2], dtype=np.uint8)
    row[0] = BEGIN_WORD + 1
    row[1 : len(spelling) + 1] = spelling
    row[1 : len(spelling) + 1] += 1
    row[len(spelling) + 1] = END_WORD + 1
    return row


class CharacterTable:
    """
    Remember how words are spelled: `lookup` costs one dictionary access a word.

    Rule: a word's row depends on the arguments below alone; any thread may use the table; it starts
    again from nothing when there would be more than `max_words`. A copy or pickle starts empty.

    # Parameters

    max_characters : `int`, optional (default = `50`)
        The length of a row.
    tokens_to_add : `Mapping[str, int]`, optional (default = `None`)
        Further words that are one special character, as `<S>` and `</S>` are (their ids are
        counted as bilm-tf's: 0 to 260).
    max_words : `int`, optional (default = `2**18`)
        26 MB of rows.
    """

    def __init__(
        self,
        max_characters: int = MAX_CHARACTERS_PER_TOKEN,
        tokens_to_add: Optional[Mapping[str, int]] = None,
        max_words: int = 2**18,
    ) -> None:
        self.max_characters = max_characters
        self.max_words = max_words
        self._tokens_to_add = dict(tokens_to_add or {})
        for word, character in self._tokens_to_add.items():
            if not 0 <= character <= PADDING:
                raise ValueError(
                    f"tokens_to_add gives {word!r} the character {character}, but a character is a "
                    f"number from 0 to {PADDING}"
                )
        self._rows = self._added_rows()

    def _added_rows(self) -> Dict[str, bytes]:
        return {
            word: _special_row(character, self.max_characters).tobytes()
            for word, character in self._tokens_to_add.items()
        }

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """
        # Returns

        `np.ndarray`
            int16, shape (len(words), max_characters), ids from 1 to 261; the caller's own copy.
        """
        # Rows are only added to a dictionary, so that other threads can't take one away.
        rows = self._rows
        try:
            spelled = [rows[word] for word in words]
        except KeyError:
            if len(rows) + len(words) > self.max_words:
                self._rows = rows = self._added_rows()
            for word in words:
                if word not in rows:
                    rows[word] = word_to_character_ids(word, self.max_characters).tobytes()
            spelled = [rows[word] for word in words]
        ids = np.frombuffer(bytearray().join(spelled), dtype=np.int16)
        return ids.reshape(len(words), self.max_characters)

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> Tuple[Any, ...]:
        return CharacterTable, (self.max_characters, self._tokens_to_add, self.max_words)


def sentences_to_character_ids(
    sentences: Sequence[Sequence[str]],
    table: Optional[CharacterTable] = None,
) -> np.ndarray:
    """
    # Parameters

    sentences : `Sequence[Sequence[str]]`
        Tokenised sentences, of any lengths.
    table : `CharacterTable`, optional (default = `None`)
        Where to look words up; a caller with many batches passes the same table each time.

    # Returns

    `np.ndarray`
        int64, shape (len(sentences), longest, max_characters): ids from 1 to 261 for each word,
        0 after the end of a sentence.
    """
    if table is None:
        table = CharacterTable()
    lengths = [len(sentence) for sentence in sentences]
    ids = np.zeros(
        (len(lengths), max(lengths, default=0), table.max_characters), dtype=np.int64
    )  # (batch, longest, max_characters)
    words: List[str] = [word for sentence in sentences for word in sentence]
    is_word = np.arange(ids.shape[1]) < np.array(lengths, dtype=np.int64)[:, None]
    ids[is_word] = table.lookup(words)  # (words, max_characters), in row-major order
    return ids
