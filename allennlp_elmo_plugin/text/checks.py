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
_GLUED = re.compile(rb"(?:.,|[a-z\x80-\xff]{4}[.!?])$", re.DOTALL)  # "Inc." is one word.
_MARKS = (b"<S>", b"</S>", b"<s>", b"</s>")
_MIN_SENTENCE = 30  # bytes; shorter ones, such as headings, are in many texts

logger = logging.getLogger(__name__)


def check_text(
    name: str,
    texts: Iterable[bytes],
    max_characters: int | None,
    vocabulary: Mapping[str, int] | None = None,
) -> None:
    """
    Warn about the start of a text, as `read_text` yields it, if more than a fifth of its words are
    not in the vocabulary, though they occur twice, and as `check_words` does.
    """
    start = _start(texts)
    counts = Counter(start.split())
    if vocabulary is not None:
        n_unknown = sum(
            n for word, n in counts.items() if n > 1 and word.decode() not in vocabulary
        )
        if n_unknown > 0.2 * counts.total():
            words = ", ".join(itertools.islice(vocabulary, len(SPECIAL_WORDS), 8))
            logger.warning(
                f"{name}: {n_unknown / counts.total():.0%} of its words count as {UNKNOWN_WORD}, "
                f"as they are not in the vocabulary of {len(vocabulary):,} words, which begins "
                f"with {words}. Is it that of another text?"
            )
    check_words(name, counts, start.count(b"\n"), max_characters)


def check_held_out(name: str, held_out: Iterable[bytes], texts: Iterable[bytes]) -> None:
    """Warn if sentences at the start of a held-out text, called `name`, are in a training text."""
    sentences = {line for line in _start(held_out).split(b"\n") if len(line) >= _MIN_SENTENCE}
    found: set[bytes] = set()
    for text in texts:
        found.update(sentences.intersection(text.split(b"\n")))
    if len(found) > 0.1 * len(sentences):
        logger.warning(
            f"{name}: {len(found) / len(sentences):.0%} of its sentences are in the training text, "
            "too, so that perplexities will be too low. Hold out others"
        )


def _start(texts: Iterable[bytes]) -> bytes:
    return b"".join(itertools.islice(texts, 2))


def check_words(
    name: str,
    counts: Counter[bytes],
    n_lines: int,
    max_characters: int | None = MAX_CHARACTERS_PER_TOKEN,
    how: str = "Put",
) -> bool:
    """
    Warn if a text called `name` seems not to be tokenised sentences (`how` to mend it: "Put spaces
    ..."), or if more than a few of its words are cut: two of `max_characters` ids mark the start
    and the end of a word. Return whether there was a warning.
    """
    separate = f"{how} spaces between words and punctuation."
    n_words = counts.total()
    n_bytes = sum(len(word) * count for word, count in counts.items())
    ending = [word for word in counts if word.endswith((b",", b".", b"!", b"?"))]
    glued = [word for word in ending if _GLUED.search(word)]
    n_glued = sum(counts[word] for word in glued)
    n_marks = sum(counts[mark] for mark in _MARKS)
    n_json = sum(count for word, count in counts.items() if word.startswith(b'{"'))
    n_escaped = sum(count for word, count in counts.items() if _ESCAPED.search(word))
    doubt = ""
    if n_json > n_lines / 2:
        doubt = "are these lines of JSON? Give the words of their sentences alone."
    elif n_marks > 0.01 * n_lines:
        doubt = f"has {n_marks:,} marks of sentences, such as <S>. Leave them out: they are added."
    elif counts[b"_"] > 0.1 * n_words:
        doubt = "is this a table, such as CoNLL-U? Give its words alone, one sentence a line."
    elif n_words < 2 * n_lines and n_bytes > 20 * n_words:  # lines of one long word each
        doubt = (
            f"is this text tokenised? It has {n_words:,} words in {n_lines:,} lines, of "
            f"{n_bytes / n_words:.0f} bytes on average. {separate}"
        )
    elif n_words > 1000 * n_lines:
        doubt = f"it has {n_words:,} words in {counted(n_lines, 'line')}. Give one sentence a line."
    elif n_glued > max(0.02 * n_words, sum(counts[mark] for mark in (b",", b".", b"!", b"?"))):
        doubt = (
            f"is this text tokenised? {n_glued:,} of {n_words:,} words end with punctuation, such "
            f"as '{_shown(glued[0])}'. {separate}"
        )
    elif n_escaped > 1e-3 * n_words:
        doubt = (
            f"is this text escaped? {n_escaped:,} of {n_words:,} words are like &apos; or &amp;. "
            "Replace them by the characters that they stand for."
        )
    if doubt:
        logger.warning(f"{name}: {doubt}")
    limit = n_bytes if max_characters is None else max_characters - 2
    cut = [word for word in counts if len(word) > limit]
    n_cut = sum(counts[word] for word in cut)
    if n_cut > 1e-4 * n_words:
        logger.warning(
            f"{name}: {n_cut:,} of {n_words:,} words have more than {limit} bytes. The model reads "
            f"only the first {limit} ({limit // 2} Cyrillic or {limit // 3} Japanese letters) of "
            f"each of them, such as '{_shown(cut[0])}'."
        )
    return bool(doubt) or n_cut > 1e-4 * n_words


def _shown(word: bytes) -> str:
    return printable(word.decode("utf-8", "replace"))[:40]
