"""
The `elmo` subcommand writes the layers of a bidirectional language model for every sentence of a
file to HDF5.
"""

import argparse
import datetime
import os
from typing import List, Optional

import torch
from allennlp.commands.subcommand import Subcommand
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError, check_for_gpu

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.embedding.embedder import DEFAULT_INITIAL_STATE, ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import (
    COMPRESSIONS,
    DTYPES,
    check_output,
    has_checkpoint,
)
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE, WEIGHT_FILE
from allennlp_elmo_plugin.files.text_lines import STANDARD_INPUT, open_lines
from allennlp_elmo_plugin.modules.elmo_bilm import INITIAL_STATES
from allennlp_elmo_plugin.modules.elmo_token_embedder import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
)

_DESCRIPTION = """\
Compute the layers of a pretrained bidirectional language model for every sentence of a text file
and write them to an HDF5 file: one dataset a sentence, whose key is the line's number from
0 ("0", "1", ...). Unless told to forget the sentences, the file has a dataset "sentence_to_index"
too: a JSON object that maps each sentence to its key. The output appears when it is complete; an
existing file is replaced only with --force. Memory does not grow with the input, except for the
text of that mapping.

After a kill or a full disk, the same command with --resume continues, and writes what a run without
a break would have written.
"""


@Subcommand.register("elmo")
class Elmo(Command):
    """`allennlp elmo`: sentences to layers, with AllenNLP 0.9's arguments."""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help="Write the layers of a pretrained language model for sentences to HDF5.",
        )
        subparser.add_argument(
            "input_file",
            type=str,
            help="UTF-8 text, plain or compressed by gzip, one sentence a line, tokens separated "
            "by white space; a blank line is a sentence without tokens; - is the standard input",
        )
        subparser.add_argument("output_file", type=str, help="HDF5 file to write")

        layers = subparser.add_mutually_exclusive_group(required=True)
        for name, text in (
            (
                "all",
                "all layers: the one without context, then the LSTM layers; "
                "shape (layers, tokens, 2 * projection size)",
            ),
            ("top", "the last LSTM layer; shape (tokens, 2 * projection size)"),
            ("average", "the mean of all layers; shape (tokens, 2 * projection size)"),
        ):
            layers.add_argument(
                f"--{name}",
                dest="output_format",
                action="store_const",
                const=name,
                help=f"write {text}",
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
            "--batch-size",
            type=int,
            help="most sentences to embed at once; default: 64 with --initial-state carried, "
            "otherwise as many as --batch-tokens allows",
        )
        subparser.add_argument(
            "--batch-tokens",
            type=int,
            default=4096,
            help="most tokens to embed at once, sentence boundaries counted; "
            "ignored with --initial-state carried",
        )
        subparser.add_argument(
            "--precision",
            choices=PRECISIONS,
            default="float32",
            help="numbers that the language model computes in: bfloat16 is faster on processors "
            "that have it, with errors of about 0.2%%",
        )
        subparser.add_argument(
            "--initial-state",
            choices=INITIAL_STATES,
            default=DEFAULT_INITIAL_STATE,
            help="state of the language model at the start of a sentence: that after the sentences "
            "before (carried: AllenNLP 0.9's way, batches of --batch-size lines in their order), "
            "that in which it settles when it reads only sentence boundaries (settled), or zero",
        )
        subparser.add_argument(
            "--cuda-device", type=int, default=-1, help="number of the GPU, -1 for the CPU"
        )
        subparser.add_argument(
            "--forget-sentences",
            action="store_true",
            help="leave out the dataset sentence_to_index; memory is then constant, however long "
            "the input",
        )
        subparser.add_argument(
            "--use-sentence-keys",
            action="store_true",
            help="use the sentences as keys instead of line numbers; an error if a sentence is "
            "blank, occurs twice with carried states, or has the key of another one in HDF5, to "
            "which slashes separate folders",
        )
        subparser.add_argument(
            "--include-sentence-indices",
            action="store_true",
            help="write the mapping of sentences to keys under the name sentence_indices too",
        )
        subparser.add_argument(
            "--dtype", choices=DTYPES, default="float32", help="numbers to write"
        )
        subparser.add_argument(
            "--compression",
            choices=COMPRESSIONS,
            help="compress the datasets: gzip, or lzf, which is faster, but only h5py reads it",
        )
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace the output file if it exists"
        )
        subparser.add_argument(
            "--resume",
            action="store_true",
            help="continue a run of the same command that did not finish, if there was one",
        )
        subparser.add_argument(
            "--num-shards",
            type=int,
            default=1,
            metavar="N",
            help="embed one of N parts of the text, for N processes with an output each; "
            "`allennlp elmo-merge` joins them",
        )
        subparser.add_argument(
            "--shard-index", type=int, default=0, metavar="I", help="which part, from 0 to N - 1"
        )
        subparser.add_argument(
            "--file-friendly-logging",
            action="store_true",
            help="write each update of the progress bar on a new line, more rarely, for log files",
        )

        return self.finish(subparser, elmo_command, _go_on)


def elmo_command(args: argparse.Namespace) -> None:
    """Run the command with its parsed arguments."""
    common_logging.FILE_FRIENDLY_LOGGING = args.file_friendly_logging
    args.output_file = os.path.expanduser(args.output_file)
    # What can be checked before the model is loaded.
    check_output(args.output_file, args.force or args.resume, args.resume)
    _check_device(args.cuda_device)
    _check_inputs_stay(args)
    words = _read_words(args.vocab_path) if args.vocab_path is not None else None
    with open_lines(args.input_file, ConfigurationError) as lines:
        embedder = ElmoEmbedder(
            args.options_file,
            args.weight_file,
            args.cuda_device,
            vocab_to_cache=words,
            initial_state=args.initial_state,
            precision=args.precision,
        )
        corpus_embedder = CorpusEmbedder(
            embedder,
            args.output_format,
            args.batch_size,
            args.batch_tokens,
            args.forget_sentences,
            args.use_sentence_keys,
            args.include_sentence_indices,
            args.dtype,
            args.compression,
            args.num_shards,
            args.shard_index,
        )
        summary = corpus_embedder.embed(lines, args.output_file, args.force, args.resume)
    duration = datetime.timedelta(seconds=round(summary["seconds"]))
    rate = summary["tokens"] / max(summary["seconds"], 1e-9)
    megabytes = os.path.getsize(args.output_file) / 1e6
    print(
        f"{summary['sentences']:,} sentences, {summary['tokens']:,} words in {duration} "
        f"({rate:,.0f} words/s), {megabytes:,.1f} MB. Written to {args.output_file}"
    )


def _go_on(args: argparse.Namespace) -> Optional[str]:
    return "--resume" if has_checkpoint(args.output_file) else None


def _check_device(cuda_device: int) -> None:
    try:
        check_for_gpu(cuda_device)
    except (ConfigurationError, RuntimeError, ValueError) as error:  # or a number too large
        n_gpus = torch.cuda.device_count()
        here = f"the GPUs here are 0 to {n_gpus - 1}" if n_gpus else "torch finds no GPU here"
        raise ConfigurationError(
            f"--cuda-device is {cuda_device}, but {here}; leave it out to use the CPU"
        ) from error


def _check_inputs_stay(args: argparse.Namespace) -> None:
    """Refuse an output that would replace a file that the command reads."""
    if not os.path.exists(args.output_file):
        return
    options, weights = args.options_file, args.weight_file
    for name in (
        args.input_file,
        args.vocab_path,
        options,
        weights,
        os.path.join(options, OPTIONS_FILE),
        *(os.path.join(folder, WEIGHT_FILE) for folder in (options, weights)),
    ):
        if name not in (None, STANDARD_INPUT) and os.path.exists(name):
            if os.path.samefile(name, args.output_file):
                raise ConfigurationError(
                    f"input and output are the same file, {name}; choose another output"
                )


def _read_words(path: str) -> List[str]:
    words = []
    with open_lines(path, ConfigurationError) as lines:
        for number, sentence, found in lines:
            if len(found) != 1:
                raise ConfigurationError(
                    f"{path}, line {number + 1}: {sentence!r} must be one word"
                )
            words += found
    return words
