"""Warnings about a text that a language model can read, but that was not meant for it as it is."""

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.errors import printable

logger = logging.getLogger(__name__)


def check_text(name: str, texts: Iterable[bytes], max_characters: int) -> None:
    """Call `check_words` for the start of a text, which `read_text` reads."""
    start = b"".join(itertools.islice(texts, 2))
    check_words(name, Counter(start.split()), start.count(b"\n"), max_characters)


def check_words(
    name: str,
    counts: Mapping[bytes, int],
    n_lines: int,
    max_characters: int = MAX_CHARACTERS_PER_TOKEN,
) -> None:
    """
    Warn if words seem not to be tokenised, or if more than a few are cut: a row of
    `max_characters` ids has two marks beside the bytes of a word. `name` is that of the text.
    """
    n_words = sum(counts.values())
    n_bytes = sum(len(word) * count for word, count in counts.items())
    n_commas = sum(count for word, count in counts.items() if word[1:].endswith(b","))
    if n_words < 2 * n_lines and n_bytes > 20 * n_words:  # lines of one long word each
        logger.warning(
            f"{name}: is this text tokenised? It has {n_words:,} words in {n_lines:,} lines, of "
            f"{n_bytes / n_words:.0f} bytes on average. Separate its words, and marks of "
            "punctuation, by spaces."
        )
    elif n_commas > 0.02 * n_words:
        logger.warning(
            f"{name}: is this text tokenised? {n_commas:,} of {n_words:,} words end with a comma. "
            "Separate marks of punctuation from words by spaces."
        )
    limit = max_characters - 2
    cut = {word: count for word, count in counts.items() if len(word) > limit}
    n_cut = sum(cut.values())
    if n_cut > 1e-4 * n_words:
        example = printable(next(iter(cut)).decode("utf-8", "replace"))[:40]
        logger.warning(
            f"{name}: {n_cut:,} of {n_words:,} words have more than {limit} bytes. Of each of "
            f"them, the model reads the first {limit} ({limit // 2} Cyrillic or {limit // 3} "
            f"Japanese letters), such as of '{example}'."
        )
