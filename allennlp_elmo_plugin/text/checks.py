"""Warnings about a text that a language model can read, but that was not meant for it as it is."""

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.errors import printable
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.text.vocabulary_file import SPECIAL_WORDS, UNKNOWN_WORD

_ESCAPED = re.compile(rb"&(apos|quot|amp|lt|gt|#\d+);")

logger = logging.getLogger(__name__)


def check_text(
    name: str,
    texts: Iterable[bytes],
    max_characters: int | None,
    vocabulary: Mapping[str, int] | None = None,
) -> None:
    """
    Warn about the start of a text, which `read_text` reads, if more than a fifth of its words are
    not in a vocabulary, and as `check_words` does.
    """
    start = b"".join(itertools.islice(texts, 2))
    counts = Counter(start.split())
    n_words = counts.total()
    if vocabulary is not None:
        unknown = sum(n for word, n in counts.items() if word.decode() not in vocabulary)
        if unknown > 0.2 * n_words:
            words = ", ".join(itertools.islice(vocabulary, len(SPECIAL_WORDS), 8))
            logger.warning(
                f"{name}: {unknown / n_words:.0%} of its words are not in the vocabulary of "
                f"{len(vocabulary):,} words ({words}, ...), and count as {UNKNOWN_WORD}. Use the "
                "vocabulary of this text, which `allennlp elmo-vocab` makes."
            )
    if max_characters is not None:
        check_words(name, counts, start.count(b"\n"), max_characters)


def check_words(
    name: str,
    counts: Mapping[bytes, int],
    n_lines: int,
    max_characters: int = MAX_CHARACTERS_PER_TOKEN,
) -> None:
    """
    Warn if the text seems not to be tokenised sentences, or if more than a few words are cut: a
    row of `max_characters` ids has two marks beside the bytes of a word. `name` is the text's.
    """
    n_words = sum(counts.values())
    n_bytes = sum(len(word) * count for word, count in counts.items())
    n_commas = sum(count for word, count in counts.items() if word[1:].endswith(b","))
    n_escaped = sum(count for word, count in counts.items() if _ESCAPED.search(word))
    doubt = ""
    if counts.get(b"_", 0) > 0.1 * n_words:
        doubt = "is this a table, such as CoNLL-U? Give its words alone, one sentence a line."
    elif n_words < 2 * n_lines and n_bytes > 20 * n_words:  # lines of one long word each
        doubt = (
            f"is this text tokenised? It has {n_words:,} words in {n_lines:,} lines, of "
            f"{n_bytes / n_words:.0f} bytes on average. Separate its words, and marks of "
            "punctuation, by spaces."
        )
    elif n_words > 1000 * n_lines:
        doubt = f"it has {n_words:,} words in {counted(n_lines, 'line')}. Give one sentence a line."
    elif n_commas > 0.02 * n_words:
        doubt = (
            f"is this text tokenised? {n_commas:,} of {n_words:,} words end with a comma. "
            "Separate marks of punctuation from words by spaces."
        )
    elif n_escaped > 1e-3 * n_words:
        doubt = (
            f"is this text escaped? {n_escaped:,} of {n_words:,} words are like &apos; or &amp;. "
            "Replace them by what they stand for, ' or &."
        )
    if doubt:
        logger.warning(f"{name}: {doubt}")
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
