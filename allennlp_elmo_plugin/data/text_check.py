"""Warnings about a text that a language model can read, but that was not meant for it as it is."""

import logging
from collections import Counter
from typing import Iterable, Iterator, Mapping

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.errors import printable

logger = logging.getLogger(__name__)

_CHECKED_WORDS = 100_000


class TextCheck:
    """
    Calls `check_words` once: after the first 100,000 words of a text, or at its end.

    # Parameters

    name : `str`
        The name of the text in warnings.
    max_characters : `int`, optional (default = `50`)
        The length of a row of character ids: a word has two marks and up to so many bytes less two.
    """

    def __init__(self, name: str, max_characters: int = MAX_CHARACTERS_PER_TOKEN) -> None:
        self._name = name
        self._max_characters = max_characters
        self._counts: Counter = Counter()
        self._n_lines = 0
        self._is_done = False

    def watch(self, texts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield texts, and `add` each."""
        for text in texts:
            self.add(text)
            yield text
        self.finish()

    def add(self, text: bytes) -> None:
        """Count the words of whole lines."""
        if not self._is_done:
            self._counts.update(text.split())
            self._n_lines += text.count(b"\n")
            if self._counts.total() >= _CHECKED_WORDS:
                self.finish("the first ")

    def finish(self, part: str = "") -> None:
        """Say what was found, if it has not been said."""
        if not self._is_done:
            self._is_done = True
            check_words(self._name, self._counts, self._n_lines, self._max_characters, part)


def check_words(
    name: str,
    counts: Mapping[bytes, int],
    n_lines: int,
    max_characters: int = MAX_CHARACTERS_PER_TOKEN,
    part: str = "",
) -> None:
    """
    Warn if words seem not to be tokenised, or are cut. `part` is "the first " if they are not all.
    """
    n_words = sum(counts.values())
    n_bytes = sum(len(word) * count for word, count in counts.items())
    n_commas = sum(count for word, count in counts.items() if word[1:].endswith(b","))
    words = f"{part}{n_words:,}"
    if n_words < 2 * n_lines and n_bytes > 20 * n_words:  # lines of one long word each
        logger.warning(
            f"{name}: is this text tokenised? It has {words} words in {n_lines:,} lines, of "
            f"{n_bytes / n_words:.0f} bytes on average. Separate its words, and marks of "
            "punctuation, by spaces."
        )
    elif n_commas > 0.02 * n_words:
        logger.warning(
            f"{name}: is this text tokenised? {n_commas:,} of {words} words end with a comma. "
            "Separate marks of punctuation from words by spaces."
        )
    limit = max_characters - 2
    cut = {word: count for word, count in counts.items() if len(word) > limit}
    if cut:
        example = printable(next(iter(cut)).decode("utf-8", "replace"))
        n_cut = sum(cut.values())
        # Of a few addresses in a text, say, a message is enough.
        logger.log(
            logging.WARNING if n_cut > 1e-4 * n_words else logging.INFO,
            f"{name}: {n_cut:,} of {words} words have more than {limit} bytes. Of each of them, "
            f"the model reads the first {limit} ({limit // 2} Cyrillic or {limit // 3} Japanese "
            f"letters), such as of '{example[:40]}{'...' * (len(example) > 40)}'.",
        )
