"""
The subcommand `elmo-vocab` counts the words of a corpus and makes the vocabulary of a language
model.

```
allennlp elmo-vocab 'corpus/*.gz' --output vocab --min-count 3
```

writes

- `vocab/vocabulary`, for a configuration: `{"type": "from_files", "directory": "vocab/vocabulary"}`
- `vocab/vocab.txt`, the vocabulary file of bilm-tf: the same words with the same ids
- `vocab/counts.tsv`, the number of times that each word is a target: counts of a unigram model
"""

import argparse
import logging
import os
import reprlib
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Dict, List, Optional, Tuple, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from allennlp_elmo_plugin.bilm.vocabulary import (
    IGNORED_WORD,
    SPECIAL_WORDS,
    UNKNOWN_WORD,
    write_vocabulary_file,
)
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.data.text import PathOrPaths, find_files, read_text
from allennlp_elmo_plugin.data.text_check import check_words
from allennlp_elmo_plugin.data.vocabulary import VOCABULARY_FOLDER, write_vocabulary_folder
from allennlp_elmo_plugin.files.model_file_names import VOCABULARY_FILE
from allennlp_elmo_plugin.files.whole import output_folder
from allennlp_elmo_plugin.progress import counted, progress_bar

logger = logging.getLogger(__name__)

COUNTS_FILE = "counts.tsv"
_OUTPUTS = (VOCABULARY_FOLDER, VOCABULARY_FILE, COUNTS_FILE)


@Subcommand.register("elmo-vocab")
class ElmoVocab(Command):
    """`allennlp elmo-vocab FILES... --output DIR [--min-count N] [--max-size N]`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = "Make the vocabulary of a language model from a corpus."
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "files",
            nargs="+",
            metavar="FILES",
            help="tokenised text, one sentence a line, plain or gzip: files, folders or globs",
        )
        subparser.add_argument("-o", "--output", required=True, metavar="DIR", help="new folder")
        subparser.add_argument(
            "--min-count", type=int, default=1, metavar="N", help="leave out words that are rarer"
        )
        subparser.add_argument(
            "--max-size",
            type=int,
            metavar="N",
            help="keep only the most frequent words; N counts <S>, </S> and <UNK>, too",
        )
        subparser.add_argument(
            "--encoding-errors",
            choices=["strict", "replace"],
            default="strict",
            help="stop at bytes that are not UTF-8, or read them as U+FFFD",
        )
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace the vocabulary in DIR"
        )
        return self.finish(subparser, make_vocabulary_from_args)


def make_vocabulary_from_args(args: argparse.Namespace) -> None:
    """Run `make_vocabulary` with the command's arguments."""
    names = ("min_count", "max_size", "encoding_errors", "force")
    make_vocabulary(args.files, args.output, **{name: getattr(args, name) for name in names})


def make_vocabulary(
    paths: PathOrPaths,
    output: Union[str, "os.PathLike[str]"],
    *,
    min_count: int = 1,
    max_size: Optional[int] = None,
    encoding_errors: str = "strict",
    force: bool = False,
) -> List[Tuple[str, int]]:
    """
    Count the words of a corpus and write its vocabulary.

    # Parameters

    paths : `str`, `os.PathLike`, or several of them
        Files, folders or globs.
    output : `str` or `os.PathLike`
        A new or empty folder. Its files appear when all are written.
    min_count : `int`, optional (default = `1`)
        Leave out words that are rarer.
    max_size : `int`, optional (default = `None`)
        Keep at most so many words, the three special ones included.
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8, "strict" or "replace".
    force : `bool`, optional (default = `False`)
        Allow a folder that is not empty, and replace the vocabulary in it.

    # Returns

    `List[Tuple[str, int]]`
        The words in the order of their ids, each with its count.
    """
    if min_count < 1:
        raise ConfigurationError(f"--min-count is {min_count}, but must be at least 1")
    if max_size is not None and max_size <= len(SPECIAL_WORDS):
        raise ConfigurationError(
            f"--max-size is {max_size}, but must be at least {len(SPECIAL_WORDS) + 1}: it counts "
            f"{', '.join(SPECIAL_WORDS)}, too"
        )
    with output_folder(output, _OUTPUTS, force) as folder:
        counts, n_sentences = count_words(find_files(paths), encoding_errors)
        if not counts:
            raise ConfigurationError(f"There is no word in the {n_sentences:,} lines of the text")
        n_words, n_tokens = len(counts), sum(counts.values())
        vocabulary = select_words(counts, n_sentences, min_count, max_size)
        if len(vocabulary) == len(SPECIAL_WORDS):
            raise ConfigurationError(
                f"No word of the text occurs {min_count} times: lower --min-count, or give more "
                "text"
            )
        words = [word for word, _ in vocabulary]
        write_vocabulary_folder(folder / VOCABULARY_FOLDER, words)
        write_vocabulary_file(folder / VOCABULARY_FILE, words)
        lines = (f"{word}\t{count}" for word, count in vocabulary)
        write_vocabulary_file(folder / COUNTS_FILE, lines)
    n_unknown = dict(vocabulary)[UNKNOWN_WORD]
    print(
        f"{counted(n_sentences, 'sentence')}, {counted(n_tokens, 'word')}, {n_words:,} different "
        f"ones; {len(vocabulary):,} are in the vocabulary and leave "
        f"{100 * n_unknown / max(n_tokens, 1):.2f}% of the text unknown. Written to {output}"
    )
    return vocabulary


def count_words(files: List[Path], encoding_errors: str) -> Tuple[Dict[str, int], int]:
    """
    Count words as the dataset reader sees them, with a progress bar, and warn if they seem not to
    be tokenised. Memory grows only with the number of distinct words. Return the count of each
    word, and the number of sentences.
    """
    of_bytes: Counter = Counter()
    n_sentences = 0
    total = sum(file.stat().st_size for file in files)
    settings = {"unit": "B", "unit_scale": True, "desc": "counting words"}
    with progress_bar(total=total, **settings) as bar:
        for text in read_text(files, encoding_errors, update=bar.update):
            of_bytes.update(text.split())
            n_sentences += text.count(b"\n")
    name = ", ".join(map(os.fspath, files[:3])) + (", ..." if len(files) > 3 else "")
    check_words(name, of_bytes, n_sentences)
    counts: Dict[str, int] = {}
    while of_bytes:
        raw, count = of_bytes.popitem()
        word = raw.decode("utf-8", encoding_errors)
        counts[word] = counts.get(word, 0) + count
    return counts, n_sentences


def select_words(
    counts: Dict[str, int], n_sentences: int, min_count: int = 1, max_size: Optional[int] = None
) -> List[Tuple[str, int]]:
    """
    Return `<S>`, `</S>` and `<UNK>`, then words by falling count, equal counts in the order of code
    points, each with its count as a target: there is one `<S>` (backward) and one `</S>` (forward)
    a sentence, and an `<UNK>` for every word left out.
    """
    special = {word: counts.get(word, 0) for word in SPECIAL_WORDS}
    # Neither can be in both forms of the file: AllenNLP reads one as a line feed, and bilm-tf
    # skips the other.
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
    n_others = sum(counts.values()) - sum(special.values())
    n_left_out = n_others - sum(count for _, count in kept)
    return [
        (BEGIN_SENTENCE_WORD, special[BEGIN_SENTENCE_WORD] + n_sentences),
        (END_SENTENCE_WORD, special[END_SENTENCE_WORD] + n_sentences),
        (UNKNOWN_WORD, special[UNKNOWN_WORD] + n_left_out),
        *kept,
    ]
