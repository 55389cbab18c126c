"""The subcommand `elmo-vocab` makes the vocabulary of a language model."""

import argparse
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.commands.command import TEXT_HELP, Command, positive
from allennlp_elmo_plugin.files.atomic import PathLike, output_folder
from allennlp_elmo_plugin.pretrained.file_names import VOCABULARY_FILE
from allennlp_elmo_plugin.progress import counted, progress_bar
from allennlp_elmo_plugin.text.checks import check_words
from allennlp_elmo_plugin.text.corpus import PathOrPaths, find_files, name_of, read_text
from allennlp_elmo_plugin.text.vocabulary import (
    IGNORED_WORD,
    SPECIAL_WORDS,
    VOCABULARY_FOLDER,
    write_vocabulary_file,
    write_vocabulary_folder,
)

COUNTS_FILE = "counts.tsv"
_OUTPUTS = (VOCABULARY_FOLDER, VOCABULARY_FILE, COUNTS_FILE)


class ElmoVocab(Command):
    """
    Make the vocabulary of a language model from a corpus.

      %(prog)s 'corpus/*.gz' --output vocab --min-count 3

    writes vocab/vocabulary for a config, {"type": "from_files", "directory": "vocab/vocabulary"};
    vocab/vocab.txt for bilm-tf, the same words with the same ids; and vocab/counts.tsv, the number
    of times that each word is a target.
    """

    name = "elmo-vocab"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("files", nargs="+", metavar="FILES", help=TEXT_HELP)
        add("-o", "--output", required=True, metavar="DIR", help="new folder")
        add("--min-count", type=positive, default=2, metavar="N", help="leave out rarer words")
        size_help = "keep only the most frequent words; N counts <S>, </S> and <UNK>, too"
        add("--max-size", type=int, metavar="N", help=size_help)
        bytes_help = "stop at bytes that are not UTF-8, or read them as U+FFFD"
        add("--encoding-errors", choices=["strict", "replace"], default="strict", help=bytes_help)
        add("-f", "--force", action="store_true", help="replace the vocabulary in DIR")

    def run(self, args: argparse.Namespace) -> None:
        options = args.min_count, args.max_size, args.encoding_errors, args.force
        make_vocabulary(args.files, args.output, *options)


def make_vocabulary(
    paths: PathOrPaths,
    output: PathLike,
    min_count: int = 1,
    max_size: int | None = None,
    encoding_errors: str = "strict",
    force: bool = False,
) -> list[tuple[str, int]]:
    """
    Count the words of a corpus, as the dataset reader reads them, and write its vocabulary. The
    arguments are those of the command, but `min_count` is 1 by default. Memory grows only with the
    number of distinct words.

    Return the words in the order of their ids: `<S>`, `</S>` and `<UNK>`, then words by falling
    count, equal counts in the order of code points. Each has its count as a target: there is one
    `<S>` (backward) and one `</S>` (forward) a sentence, and an `<UNK>` for every word left out.
    """
    with output_folder(output, _OUTPUTS, force) as folder:
        made, summary = write_vocabulary(paths, folder, min_count, max_size, encoding_errors)
    print(f"{summary}. Written to {output}")
    return made


def write_vocabulary(
    paths: PathOrPaths,
    folder: Path,
    min_count: int = 1,
    max_size: int | None = None,
    encoding_errors: str = "strict",
) -> tuple[list[tuple[str, int]], str]:
    """Do what `make_vocabulary` does, to a folder; return a summary, too."""
    counts: Counter[bytes] = Counter()
    n_sentences = 0
    files = find_files(paths)
    total = sum(file.stat().st_size for file in files)
    with progress_bar(total=total, unit="B", unit_scale=True, desc="counting words") as bar:
        for text in read_text(files, encoding_errors, update=bar.update):
            counts.update(text.split())
            n_sentences += text.count(b"\n")
    check_words(name_of(files), counts, n_sentences)
    left_out = {word.encode() for word in (*SPECIAL_WORDS, IGNORED_WORD)}
    kept: list[Any] = sorted(
        item for item in counts.items() if item[1] >= min_count and item[0] not in left_out
    )
    # Sorting once, by a key of both, would need 2 GB more for 20 million words.
    kept.sort(key=itemgetter(1), reverse=True)
    if max_size is not None:
        kept = kept[: max(0, max_size - len(SPECIAL_WORDS))]
    if not kept:
        most = "" if max_size is None else f" and a size of {max_size} at most"
        raise ValueError(
            f"no word is left by a count of at least {min_count}{most}: give more text"
        )
    for i, (word, count) in enumerate(kept):
        kept[i] = word.decode(), count
    n_begin, n_end = (counts[word.encode()] for word in SPECIAL_WORDS[:2])
    n_words = counts.total()
    n_unknown = n_words - n_begin - n_end - sum(count for _, count in kept)
    n_special = n_begin + n_sentences, n_end + n_sentences, n_unknown
    vocabulary = [*zip(SPECIAL_WORDS, n_special), *kept]
    words = [word for word, _ in vocabulary]
    write_vocabulary_folder(folder / VOCABULARY_FOLDER, words)
    write_vocabulary_file(folder / VOCABULARY_FILE, words)
    write_vocabulary_file(folder / COUNTS_FILE, (f"{word}\t{n}" for word, n in vocabulary))
    summary = (
        f"{counted(n_sentences, 'sentence')}, {counted(n_words, 'word')}, {len(counts):,} "
        f"different ones. The vocabulary has {len(words):,}, with {', '.join(SPECIAL_WORDS)}, "
        f"and leaves {n_unknown / n_words:.2%} of the text unknown"
    )
    return vocabulary, summary
