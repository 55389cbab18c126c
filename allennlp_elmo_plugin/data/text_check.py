"""Warnings about a text that a language model can read, but that was not meant for it as it is."""

import logging
from typing import Iterable, Iterator

import numpy as np

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.text_lines import find_words

logger = logging.getLogger(__name__)

_CHECKED_WORDS = 100_000

# A text is not tokenised if its lines are one long word each, or if commas are parts of words.
_WORDS_OF_A_LINE, _BYTES_OF_A_WORD = 2, 20
_SHARE_WITH_COMMA = 0.02
_SHARE_WITH_ZERO = 0.5
"""Zero bytes for each word: UTF-16, read as UTF-8, has one for each space at least."""
_SHARE_CUT = 1e-4
"""A warning if more words are cut; otherwise, as of a few addresses in a text, a message."""


class TextCheck:
    """
    Counts the words of a text that are cut, and what tells that it isn't tokenised, and logs one
    warning about each: after the first 100,000 words, or at the end of the text.

    # Parameters

    name : `str`
        The name of the text in warnings.
    max_characters : `int`, optional (default = `50`)
        The length of a row of character ids: a word has two marks and up to so many bytes less two.
    """

    def __init__(self, name: str, max_characters: int = MAX_CHARACTERS_PER_TOKEN) -> None:
        self._name = name
        self._max_bytes = max_characters - 2
        self._n_lines = self._n_words = self._n_bytes = self._n_cut = self._n_with_comma = 0
        self._n_zero = self._n_returns = 0
        self._example = ""
        self._is_done = False

    def watch(self, texts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield texts, as `join_lines` returns them, and `add` each."""
        for text in texts:
            self.add(text)
            yield text
        self.finish()

    def add(self, text: bytes) -> None:
        """Count whole lines, as `join_lines` returns them."""
        if self._is_done:
            return
        starts, ends, n_words = find_words(text)
        lengths = ends - starts
        self._n_zero += text.count(b"\0")
        self._n_returns += text.count(b"\r") - text.count(b"\r\n")
        self._n_lines += len(n_words)
        self._n_words += len(starts)
        self._n_bytes += int(lengths.sum())
        last = np.frombuffer(text, dtype=np.uint8)[ends - 1]
        self._n_with_comma += int(((last == ord(",")) & (lengths > 1)).sum())
        cut = np.flatnonzero(lengths > self._max_bytes)
        if len(cut):
            self._n_cut += len(cut)
            self._example = self._example or _decoded(text[starts[cut[0]] : ends[cut[0]]])
        if self._n_words >= _CHECKED_WORDS:
            self._report(f"the first {self._n_words:,}")

    def add_word(self, word: bytes, count: int) -> None:
        """Count a word that occurs several times."""
        self._n_words += count
        self._n_bytes += count * len(word)
        self._n_zero += count * word.count(b"\0")
        if word.endswith(b",") and len(word) > 1:
            self._n_with_comma += count
        if len(word) > self._max_bytes:
            self._n_cut += count
            self._example = self._example or _decoded(word)

    def finish(self, n_lines: int = 0) -> None:
        """Say what was found, if it has not been said. `n_lines` have been counted elsewhere."""
        self._n_lines += n_lines
        if not self._is_done:
            self._report(f"{self._n_words:,}")

    def _report(self, words: str) -> None:
        self._is_done = True
        if self._n_zero > _SHARE_WITH_ZERO * self._n_words:
            logger.warning(
                "%s: is this text UTF-8? There are %s zero bytes in %s words, as in UTF-16. "
                "Convert it, such as by `iconv -f UTF-16LE -t UTF-8 FILE > NEW_FILE`.",
                self._name,
                f"{self._n_zero:,}",
                words,
            )
            return  # What else is wrong with the words follows from it.
        if self._n_returns > self._n_lines:
            logger.warning(
                "%s: %s carriage returns without a line feed are read as spaces. If they end "
                "lines, convert them, such as by `tr '\\r' '\\n' < FILE > NEW_FILE`.",
                self._name,
                f"{self._n_returns:,}",
            )
        if self._n_words < _WORDS_OF_A_LINE * self._n_lines and (
            self._n_bytes > _BYTES_OF_A_WORD * self._n_words
        ):
            logger.warning(
                "%s: is this text tokenised? It has %s words in %s lines, of %.0f bytes on "
                "average. Separate its words, and marks of punctuation, by spaces.",
                self._name,
                words,
                f"{self._n_lines:,}",
                self._n_bytes / self._n_words,
            )
        elif self._n_with_comma > _SHARE_WITH_COMMA * self._n_words:
            logger.warning(
                "%s: is this text tokenised? %s of %s words end with a comma. Separate marks of "
                "punctuation from words by spaces.",
                self._name,
                f"{self._n_with_comma:,}",
                words,
            )
        if self._n_cut:
            logger.log(
                logging.WARNING if self._n_cut > _SHARE_CUT * self._n_words else logging.INFO,
                "%s: %s of %s words have more than %d bytes. Of each of them, the model reads the "
                "first %d (%d Cyrillic or %d Japanese letters), such as of '%s'.",
                self._name,
                f"{self._n_cut:,}",
                words,
                self._max_bytes,
                self._max_bytes,
                self._max_bytes // 2,
                self._max_bytes // 3,
                self._example,
            )


def _decoded(word: bytes) -> str:
    text = word.decode("utf-8", "replace")
    text = text if len(text) <= 40 else f"{text[:40]}..."
    return text if text.isprintable() else shown(text)
