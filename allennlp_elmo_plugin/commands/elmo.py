"""
The `elmo` subcommand writes the layers of a bidirectional language model for every sentence of a
file to HDF5.
"""

import argparse
import os
from typing import List

from allennlp.commands.subcommand import Subcommand
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedder import ElmoEmbedder, read_lines
from allennlp_elmo_plugin.layers_file import LayersFile
from allennlp_elmo_plugin.modules.token_embedders.elmo_token_embedder import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
)

_GZIP = b"\x1f\x8b"

_DESCRIPTION = """\
Compute the layers of a pretrained bidirectional language model for every sentence of a text file
and write them to an HDF5 file: one float32 dataset a sentence, whose key is the line's number from
0 ("0", "1", ...). Unless told to forget the sentences, the file has a dataset "sentence_to_index"
too: a JSON object that maps each sentence to its key. The output appears, complete, when the
command is through; an existing file is replaced only with --force.

The states of the language model are carried from batch to batch, so that a sentence's layers
depend somewhat on the sentences before it.
"""


@Subcommand.register("elmo")
class Elmo(Subcommand):
    """`allennlp elmo`: sentences to layers, with AllenNLP 0.9's arguments."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        """
        # Parameters

        parser : `argparse._SubParsersAction`
            The subparsers of the main program.

        # Returns

        `argparse.ArgumentParser`
            The parser of this command.
        """
        subparser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help="Write the layers of a pretrained language model for sentences to HDF5.",
        )
        subparser.add_argument(
            "input_file",
            type=str,
            help="UTF-8 text, one sentence a line, tokens separated by white space; a blank line "
            "is a sentence without tokens",
        )
        subparser.add_argument("output_file", type=str, help="HDF5 file to write")

        layers = subparser.add_mutually_exclusive_group(required=True)
        layers.add_argument(
            "--all",
            dest="output_format",
            action="store_const",
            const="all",
            help="write all layers: the one without context, then the LSTM layers; "
            "shape (layers, tokens, 2 * projection size)",
        )
        layers.add_argument(
            "--top",
            dest="output_format",
            action="store_const",
            const="top",
            help="write the last LSTM layer; shape (tokens, 2 * projection size)",
        )
        layers.add_argument(
            "--average",
            dest="output_format",
            action="store_const",
            const="average",
            help="write the mean of all layers; shape (tokens, 2 * projection size)",
        )

        subparser.add_argument(
            "--vocab-path",
            type=str,
            help="text file of words, one a line, whose character representations are computed "
            "in advance; batches of such words alone are then faster, with the same result",
        )
        subparser.add_argument(
            "--options-file",
            type=str,
            default=DEFAULT_OPTIONS_FILE,
            help="options of the language model (JSON), a path or an address",
        )
        subparser.add_argument(
            "--weight-file",
            type=str,
            default=DEFAULT_WEIGHT_FILE,
            help="weights of the language model (HDF5), a path or an address",
        )
        subparser.add_argument(
            "--batch-size", type=int, default=64, help="number of sentences to embed at once"
        )
        subparser.add_argument(
            "--cuda-device", type=int, default=-1, help="number of the GPU, -1 for the CPU"
        )
        subparser.add_argument(
            "--forget-sentences",
            action="store_true",
            help="leave out the dataset sentence_to_index; memory is then constant however long "
            "the input",
        )
        subparser.add_argument(
            "--use-sentence-keys",
            action="store_true",
            help="use the sentences as keys instead of line numbers; an error if a sentence is "
            "blank, occurs twice or contains a slash (HDF5 splits keys at slashes)",
        )
        subparser.add_argument(
            "--include-sentence-indices",
            action="store_true",
            help="write the mapping of sentences to keys under the name sentence_indices too",
        )
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace the output file if it exists"
        )
        subparser.add_argument(
            "--file-friendly-logging",
            action="store_true",
            help="write the progress bar on lines of its own, more rarely, for logs in files",
        )

        subparser.set_defaults(func=elmo_command)
        return subparser


def elmo_command(args: argparse.Namespace) -> None:
    """
    Run the command.

    # Parameters

    args : `argparse.Namespace`
        The parsed arguments of `allennlp elmo`.

    # Raises

    `ConfigurationError`
        When the input, the output or the language model's files cannot be used.
    """
    common_logging.FILE_FRIENDLY_LOGGING = args.file_friendly_logging
    # What can fail at once should not wait for the model to load.
    LayersFile(args.output_file, args.force)
    _check_input(args.input_file)
    if os.path.exists(args.output_file) and os.path.samefile(args.input_file, args.output_file):
        raise ConfigurationError(f"input and output are the same file, {args.input_file}")
    words = _read_words(args.vocab_path) if args.vocab_path is not None else None
    embedder = ElmoEmbedder(
        args.options_file, args.weight_file, args.cuda_device, vocab_to_cache=words
    )
    with open(args.input_file, "rb") as input_file:
        embedder.embed_file(
            input_file,
            args.output_file,
            output_format=args.output_format,
            batch_size=args.batch_size,
            forget_sentences=args.forget_sentences,
            use_sentence_keys=args.use_sentence_keys,
            include_sentence_indices=args.include_sentence_indices,
            overwrite=args.force,
        )


def _check_input(path: str) -> None:
    # Not `isfile`: the input may be a pipe.
    if os.path.isdir(path):
        raise ConfigurationError(f"{path} is a folder; give a file")
    if not os.path.exists(path):
        raise ConfigurationError(f"there is no file {path} to read")
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read(2) == _GZIP:
                raise ConfigurationError(f"{path} is compressed; unpack it first (gunzip)")


def _read_words(path: str) -> List[str]:
    _check_input(path)
    with open(path, "rb") as file:
        words = list(read_lines(file, path))
    for number, word in enumerate(words, start=1):
        if len(word.split()) != 1:
            raise ConfigurationError(f"{path}, line {number}: {word!r} must be one word")
    return words
