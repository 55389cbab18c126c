"""
Words as sequences of character ids, the input of every character model.

The alphabet is bilm-tf's: the 256 byte values of UTF-8 and five marks. As in bilm-tf's prediction,
1 is added to each id, since 0 stands for positions after the end of a sentence.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
MAX_CHARACTERS_PER_TOKEN = 50
N_CHARACTERS = 262

BEGIN_SENTENCE_WORD = "<S>"
END_SENTENCE_WORD = "</S>"

Sentences = Iterable[Sequence[str]]

_SPECIAL_CHARACTERS = {BEGIN_SENTENCE_WORD: BEGIN_SENTENCE, END_SENTENCE_WORD: END_SENTENCE}


def words_to_character_ids(
    words: Sequence[str],
    max_characters: int = MAX_CHARACTERS_PER_TOKEN,
    special_characters: Mapping[str, int] = _SPECIAL_CHARACTERS,
) -> np.ndarray:
    """
    Spell words as bilm-tf does: a begin mark, the bytes of their UTF-8 form, an end mark and
    padding. Bytes after the first `max_characters - 2` are cut off, even inside a character. Lone
    surrogates are left out. Return ids from 1 to 261, int16, shape `(len(words), max_characters)`.
    """
    special = [(row, word) for row, word in enumerate(words) if word in special_characters]
    spellings = [word.encode("utf-8", "ignore")[: max_characters - 2] for word in words]
    for row, _ in special:
        spellings[row] = b"?"  # one character, set below
    lengths = np.fromiter(map(len, spellings), dtype=np.intp, count=len(spellings))[:, None]
    places = np.arange(max_characters)
    ids = np.full((len(words), max_characters), PADDING, dtype=np.int16)
    ids[:, 0] = BEGIN_WORD
    ids[(places > 0) & (places <= lengths)] = np.frombuffer(b"".join(spellings), dtype=np.uint8)
    ids[places == lengths + 1] = END_WORD
    for row, word in special:
        ids[row, 1] = special_characters[word]
    return ids + np.int16(1)


class CharacterTable:
    """
    Spells words, and keeps the spellings of at most `max_words` words, by default 26 MB.
    `tokens_to_add` are words that, like `<S>` and `</S>`, are spelled as one special character, by
    bilm-tf's ids, 0 to 260. Threads may share a table.
    """

    def __init__(
        self,
        max_characters: int = MAX_CHARACTERS_PER_TOKEN,
        tokens_to_add: Mapping[str, int] | None = None,
        max_words: int = 2**18,
    ) -> None:
        self.max_characters = max_characters
        self.max_words = max_words
        self._tokens_to_add = dict(tokens_to_add or {})
        self._rows: dict[str, bytes] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rows": {}}  # so that a pickle doesn't depend on what was spelled

    def spell(self, words: Sequence[str]) -> list[bytes]:
        """Return the rows of `words_to_character_ids` as bytes."""
        # No row is removed from this dictionary, since another thread may read it.
        rows = self._rows
        new = [word for word in dict.fromkeys(words) if word not in rows]
        if len(rows) + len(new) > self.max_words:
            self._rows = rows = {}
            new = list(dict.fromkeys(words))
        if new:
            special = {**_SPECIAL_CHARACTERS, **self._tokens_to_add}
            ids = words_to_character_ids(new, self.max_characters, special)
            rows.update(zip(new, map(bytes, ids)))
        return [rows[word] for word in words]

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """Return a new array of ids as `words_to_character_ids` does."""
        ids = np.frombuffer(bytearray().join(self.spell(words)), dtype=np.int16)
        return ids.reshape(len(words), self.max_characters)


def sentences_to_character_ids(
    sentences: Sequence[Sequence[str]], table: CharacterTable | None = None
) -> np.ndarray:
    """
    Return character ids, int64, shape `(len(sentences), longest, max_characters)`, with 0 after the
    end of a sentence. For many batches, pass the same `table` each time.
    """
    table = CharacterTable() if table is None else table
    lengths = [len(sentence) for sentence in sentences]
    # (batch, longest, max_characters)
    ids = np.zeros((len(lengths), max(lengths, default=0), table.max_characters), dtype=np.int64)
    words = [word for sentence in sentences for word in sentence]
    is_word = np.arange(ids.shape[1]) < np.array(lengths, dtype=np.int64)[:, None]
    ids[is_word] = table.lookup(words)  # (words, max_characters), in row-major order
    return ids


def split_letters(batch: Sentences) -> list[Sequence[str]]:
    """Return sentences as other ELMo packages read them: a string is a list of its letters."""
    sentences = list(batch)
    if any(isinstance(sentence, str) and " " in sentence for sentence in sentences):
        warnings.warn("A sentence is a string with spaces, which is read letter by letter")
    return [list(each) if isinstance(each, str) else each for each in sentences]


def check_sentences(batch: Any) -> list[list[str]]:
    """Return sentences as lists of strings. A wrong type raises a `ValueError` that says where."""
    if isinstance(batch, str):
        raise ValueError(
            f"got the text {batch[:40]!r} instead of a list of sentences, each a list of words: "
            f"[{batch[:40].split()}]"
        )
    sentences = []
    for number, sentence in enumerate(batch):
        if isinstance(sentence, (str, bytes)):
            raise ValueError(
                f"sentence {number} is the string {sentence[:40]!r}, but a sentence is a list of "
                f"words: {sentence[:40].split()}, or of letters: list(...). Pass a single "
                "sentence as [sentence]"
            )
        if not isinstance(sentence, Iterable) or isinstance(sentence, Mapping):
            raise ValueError(
                f"sentence {number} is {sentence!r:.40}, but a sentence is a list of words; where "
                'it is missing, pass an empty one, as fillna("") of a pandas column does'
            )
        words = list(sentence)
        if {*map(type, words)} != {str}:
            words = [getattr(word, "text", word) for word in words]  # spaCy's tokens have it.
            for word in words:
                if not isinstance(word, str):
                    raise ValueError(
                        f"sentence {number} has the word {word!r:.40}, a {type(word).__name__}; "
                        "words are strings"
                    )
        sentences.append(words)
    return sentences
