"""The words of a corpus, counted, and those of a vocabulary chosen from them."""

import logging
import reprlib
from collections import Counter
from operator import itemgetter
from pathlib import Path

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.progress import progress_bar
from allennlp_elmo_plugin.text.checks import check_words
from allennlp_elmo_plugin.text.corpus import read_text
from allennlp_elmo_plugin.text.vocabulary_file import IGNORED_WORD, SPECIAL_WORDS, UNKNOWN_WORD

logger = logging.getLogger(__name__)


def count_words(files: list[Path], encoding_errors: str) -> tuple[dict[str, int], int]:
    """
    Return the count of each word as the dataset reader sees them, and the number of sentences.
    Memory grows only with the number of distinct words. Warn if they seem not to be tokenised.
    """
    of_bytes: Counter = Counter()
    n_sentences = 0
    total = sum(file.stat().st_size for file in files)
    with progress_bar(total=total, unit="B", unit_scale=True, desc="counting words") as bar:
        for text in read_text(files, encoding_errors, update=bar.update):
            of_bytes.update(text.split())
            n_sentences += text.count(b"\n")
    names = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
    check_words(names, of_bytes, n_sentences)
    counts: dict[str, int] = {}
    while of_bytes:
        word, count = of_bytes.popitem()
        counts[word.decode()] = count
    return counts, n_sentences


def select_words(
    counts: dict[str, int], n_sentences: int, min_count: int = 1, max_size: int | None = None
) -> list[tuple[str, int]]:
    """
    Return `<S>`, `</S>` and `<UNK>`, then words by falling count, equal counts in the order of code
    points, each with its count as a target: there is one `<S>` (backward) and one `</S>` (forward)
    a sentence, and an `<UNK>` for every word left out.
    """
    # AllenNLP reads the former as a line feed, and bilm-tf skips the latter.
    unwritable = [word for word in counts if "@@NEWLINE@@" in word or word == IGNORED_WORD]
    if unwritable:
        logger.warning("Left out of the vocabulary: %s", reprlib.repr(sorted(unwritable)))
    left_out = {*SPECIAL_WORDS, *unwritable}
    kept = [item for item in counts.items() if item[1] >= min_count and item[0] not in left_out]
    # One key made of both would need 2 GB more for 20 million words.
    kept.sort(key=itemgetter(0))
    kept.sort(key=itemgetter(1), reverse=True)
    if max_size is not None:
        kept = kept[: max_size - len(SPECIAL_WORDS)]
    n_begin, n_end = (counts.get(each, 0) for each in (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD))
    n_unknown = sum(counts.values()) - n_begin - n_end - sum(count for _, count in kept)
    return [
        (BEGIN_SENTENCE_WORD, n_begin + n_sentences),
        (END_SENTENCE_WORD, n_end + n_sentences),
        (UNKNOWN_WORD, n_unknown),
        *kept,
    ]
