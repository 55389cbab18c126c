"""The subcommand `elmo-vocab` makes the vocabulary of a language model."""

import argparse

from allennlp_elmo_plugin.commands.command import TEXT_HELP, Command, positive
from allennlp_elmo_plugin.files.whole import PathLike, output_folder
from allennlp_elmo_plugin.pretrained.file_names import VOCABULARY_FILE
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.text.corpus import PathOrPaths, find_files
from allennlp_elmo_plugin.text.vocabulary_file import SPECIAL_WORDS, write_vocabulary_file
from allennlp_elmo_plugin.text.vocabulary_folder import VOCABULARY_FOLDER, write_vocabulary_folder
from allennlp_elmo_plugin.text.word_counts import count_words, select_words

COUNTS_FILE = "counts.tsv"
_OUTPUTS = (VOCABULARY_FOLDER, VOCABULARY_FILE, COUNTS_FILE)


class ElmoVocab(Command):
    """
    Make the vocabulary of a language model from a corpus.

      allennlp elmo-vocab 'corpus/*.gz' --output vocab --min-count 3

    writes vocab/vocabulary for a config, {"type": "from_files", "directory": "vocab/vocabulary"};
    vocab/vocab.txt for bilm-tf, the same words with the same ids; and vocab/counts.tsv, the number
    of times that each word is a target.
    """

    name = "elmo-vocab"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("files", nargs="+", metavar="FILES", help=TEXT_HELP)
        add("-o", "--output", required=True, metavar="DIR", help="new folder")
        add("--min-count", type=positive, default=1, metavar="N", help="leave out rarer words")
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
    Count the words of a corpus and write its vocabulary. The arguments are those of the command.
    Return the words in the order of their ids, each with its count.
    """
    with output_folder(output, _OUTPUTS, force) as folder:
        counts, n_sentences = count_words(find_files(paths), encoding_errors)
        n_words, n_tokens = len(counts), sum(counts.values())
        vocabulary = select_words(counts, n_sentences, min_count, max_size)
        words = [word for word, _ in vocabulary]
        if len(words) <= len(SPECIAL_WORDS):
            raise ValueError("no word is left: give more text, or change --min-count or --max-size")
        write_vocabulary_folder(folder / VOCABULARY_FOLDER, words)
        write_vocabulary_file(folder / VOCABULARY_FILE, words)
        lines = (f"{word}\t{count}" for word, count in vocabulary)
        write_vocabulary_file(folder / COUNTS_FILE, lines)
    unknown = vocabulary[2][1] / n_tokens
    print(
        f"{counted(n_sentences, 'sentence')}, {counted(n_tokens, 'word')}, {n_words:,} different "
        f"ones. The vocabulary has {len(words):,}, with {', '.join(SPECIAL_WORDS)}, and leaves "
        f"{unknown:.2%} of the text unknown. Written to {output}"
    )
    return vocabulary
