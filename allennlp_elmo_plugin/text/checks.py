"""Warnings about a text that a language model can read, but that should be prepared first."""

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from allennlp_elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from allennlp_elmo_plugin.exits import printable
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.text.vocabulary import SPECIAL_WORDS, UNKNOWN_WORD

_ESCAPED = re.compile(rb"&(apos|quot|amp|lt|gt|#\d+);")

logger = logging.getLogger(__name__)


def check_text(
    name: str,
    texts: Iterable[bytes],
    max_characters: int | None,
    vocabulary: Mapping[str, int] | None = None,
) -> None:
    """
    Warn about the start of a text, as `read_text` yields it, if more than a fifth of its words are
    not in the vocabulary, and as `check_words` does.
    """
    start = b"".join(itertools.islice(texts, 2))
    counts = Counter(start.split())
    if vocabulary is not None:
        n_unknown = sum(n for word, n in counts.items() if word.decode() not in vocabulary)
        if n_unknown > 0.2 * counts.total():
            words = ", ".join(itertools.islice(vocabulary, len(SPECIAL_WORDS), 8))
            logger.warning(
                f"{name}: {n_unknown / counts.total():.0%} of its words count as {UNKNOWN_WORD}, "
                f"as they are not in the vocabulary of {len(vocabulary):,} words, which begins "
                f"with {words}. For such a text, make another one by `elmo-vocab`."
            )
    if max_characters is not None:
        check_words(name, counts, start.count(b"\n"), max_characters)


def check_words(
    name: str, counts: Counter[bytes], n_lines: int, max_characters: int = MAX_CHARACTERS_PER_TOKEN
) -> None:
    """
    Warn if a text called `name` seems not to be tokenised sentences, or if more than a few of its
    words are cut: two of `max_characters` ids mark the start and the end of a word.
    """
    n_words = counts.total()
    n_bytes = sum(len(word) * count for word, count in counts.items())
    n_commas = sum(count for word, count in counts.items() if word[1:].endswith(b","))
    n_escaped = sum(count for word, count in counts.items() if _ESCAPED.search(word))
    doubt = ""
    if counts[b"_"] > 0.1 * n_words:
        doubt = "is this a table, such as CoNLL-U? Give its words alone, one sentence a line."
    elif n_words < 2 * n_lines and n_bytes > 20 * n_words:  # lines of one long word each
        doubt = (
            f"is this text tokenised? It has {n_words:,} words in {n_lines:,} lines, of "
            f"{n_bytes / n_words:.0f} bytes on average. Put spaces between words and punctuation."
        )
    elif n_words > 1000 * n_lines:
        doubt = f"it has {n_words:,} words in {counted(n_lines, 'line')}. Give one sentence a line."
    elif n_commas > 0.02 * n_words:
        doubt = (
            f"is this text tokenised? {n_commas:,} of {n_words:,} words end with a comma. "
            "Put spaces between words and punctuation."
        )
    elif n_escaped > 1e-3 * n_words:
        doubt = (
            f"is this text escaped? {n_escaped:,} of {n_words:,} words are like &apos; or &amp;. "
            "Replace them by the characters that they stand for."
        )
    if doubt:
        logger.warning(f"{name}: {doubt}")
    limit = max_characters - 2
    cut = [word for word in counts if len(word) > limit]
    n_cut = sum(counts[word] for word in cut)
    if n_cut > 1e-4 * n_words:
        example = printable(cut[0].decode("utf-8", "replace"))[:40]
        logger.warning(
            f"{name}: {n_cut:,} of {n_words:,} words have more than {limit} bytes. The model reads "
            f"only the first {limit} ({limit // 2} Cyrillic or {limit // 3} Japanese letters) of "
            f"each of them, such as '{example}'."
        )
