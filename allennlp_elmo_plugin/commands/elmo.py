"""
The `elmo` subcommand writes the layers of a bidirectional language model for every sentence of a
file to HDF5.
"""

import argparse
import datetime
import os
import time
from typing import Any, Dict, List, Optional

from allennlp.commands.subcommand import Subcommand
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.model_arguments import add_model_arguments, check_device
from allennlp_elmo_plugin.embedding.corpus_embedder import (
    CorpusEmbedder,
    can_resume,
    check_output,
    parts_folder,
)
from allennlp_elmo_plugin.embedding.embedder import DEFAULT_INITIAL_STATE, ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import COMPRESSIONS, DTYPES
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from allennlp_elmo_plugin.embedding.ray_workers import embed_parts, import_ray
from allennlp_elmo_plugin.files.text_lines import STANDARD_INPUT, open_lines
from allennlp_elmo_plugin.files.whole import is_special
from allennlp_elmo_plugin.modules.elmo_bilm import INITIAL_STATES
from allennlp_elmo_plugin.modules.elmo_files import local_files
from allennlp_elmo_plugin.progress import counted

_DESCRIPTION = """\
Compute the layers of a pretrained bidirectional language model for every sentence of a text file
and write them to an HDF5 file: one dataset a sentence, whose key is the line's number from
0 ("0", "1", ...). Unless told to forget the sentences, the file has a dataset "sentence_to_index"
too: a JSON object that maps each sentence to its key. The output appears when it is complete; an
existing file is replaced only with --force. Memory does not grow with the input, except for the
text of that mapping.

The text is embedded in parts of 32,768 words, which are in the folder output_file.parts until they
are joined. After a kill or a full disk, the same command with --resume continues, and writes what a
run without a break would have written. With --num-shards N, N processes with the same output_file
share the parts, and the one that finishes last joins them; a repeated command continues.

--ray-workers embeds the parts with Ray (pip install 'allennlp_elmo_plugin[ray]'), on all cores or
GPUs of a machine or of a cluster with a shared file system. Give more shards (--num-shards) than
workers, so that none waits long for the last one.
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
        add_model_arguments(subparser)
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
            help="embed one Nth of the text, as one of N processes with the same output; with "
            "--ray-workers, divide the work into so many tasks",
        )
        subparser.add_argument(
            "--shard-index", type=int, default=0, metavar="I", help="which Nth, from 0 to N - 1"
        )
        subparser.add_argument(
            "--ray-workers",
            type=int,
            metavar="N",
            help="embed the shards with N workers of Ray, with one core each or --gpus-per-worker",
        )
        subparser.add_argument(
            "--gpus-per-worker",
            type=float,
            default=0,
            metavar="X",
            help="GPUs of each of the --ray-workers; a fraction lets workers share a GPU",
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
    _check_ray_options(args)
    shares = args.num_shards > 1  # and goes on with the others' parts
    check_output(args.output_file, args.force or args.resume or shares, args.resume or shares)
    check_device(args.cuda_device)
    _check_inputs_stay(args)
    model = {
        "options_file": args.options_file,
        "weight_file": args.weight_file,
        "vocab_to_cache": _read_words(args.vocab_path) if args.vocab_path is not None else None,
        "initial_state": args.initial_state,
        "precision": args.precision,
    }
    options = {
        "output_format": args.output_format,
        "batch_size": args.batch_size,
        "batch_tokens": args.batch_tokens,
        "forget_sentences": args.forget_sentences,
        "use_sentence_keys": args.use_sentence_keys,
        "include_sentence_indices": args.include_sentence_indices,
        "dtype": args.dtype,
        "compression": args.compression,
        "num_shards": args.num_shards,
    }
    start = time.monotonic()
    if args.ray_workers is not None:
        _write_parts_with_ray(args, model, options)
        model["vocab_to_cache"], args.resume = None, True
    with open_lines(args.input_file) as lines:
        embedder = ElmoEmbedder(**model, cuda_device=args.cuda_device)
        corpus_embedder = CorpusEmbedder(embedder, **options, shard_index=args.shard_index)
        summary = corpus_embedder.embed(lines, args.output_file, args.force, args.resume)
    seconds = time.monotonic() - start
    text = f"{counted(summary['sentences'], 'sentence')}, {counted(summary['tokens'], 'word')}"
    if summary["missing_parts"]:
        print(
            f"{text}. This shard is complete; {parts_folder(args.output_file)} lacks "
            f"{counted(summary['missing_parts'], 'part')} of other shards"
        )
        return
    print(
        f"{text} in {datetime.timedelta(seconds=round(seconds))} "
        f"({summary['tokens'] / seconds:,.0f} words/s), "
        f"{os.path.getsize(args.output_file) / 1e6:,.1f} MB. Written to {args.output_file}"
    )


def _check_ray_options(args: argparse.Namespace) -> None:
    if args.ray_workers is None:
        if args.gpus_per_worker:
            raise ConfigurationError("--gpus-per-worker is for --ray-workers; use --cuda-device")
        return
    import_ray()
    if args.ray_workers < 1:
        raise ConfigurationError(f"--ray-workers is {args.ray_workers}; it must be at least 1")
    if args.num_shards < args.ray_workers:
        raise ConfigurationError(
            f"--ray-workers is {args.ray_workers}, but --num-shards is {args.num_shards}; give "
            "more shards than workers, some ten times as many"
        )
    if not 0 <= args.gpus_per_worker <= 1:
        raise ConfigurationError(
            f"--gpus-per-worker is {args.gpus_per_worker:g}; it must be from 0 to 1"
        )
    if args.cuda_device != -1:
        raise ConfigurationError(
            "Ray chooses the GPUs of its workers; use --gpus-per-worker instead of --cuda-device"
        )
    if args.shard_index:
        raise ConfigurationError("--ray-workers embeds all shards; leave out --shard-index")
    if args.input_file == STANDARD_INPUT or is_special(args.input_file):
        raise ConfigurationError(
            "Ray's workers all read the text, so it must be a file, not the standard input or a "
            "pipe"
        )


def _write_parts_with_ray(
    args: argparse.Namespace, model: Dict[str, Any], options: Dict[str, Any]
) -> None:
    # Mistakes in the text, the options and the model are found before Ray starts.
    with open_lines(args.input_file):
        CorpusEmbedder(ElmoEmbedder(**{**model, "vocab_to_cache": None}), **options)
    if os.path.exists(args.output_file) and not args.force:
        return  # `embed` checks whether it is complete.
    if args.force and not args.resume:
        PartsFolder(parts_folder(args.output_file)).remove()
    embed_parts(
        args.input_file,
        args.output_file,
        model=model,
        options=options,
        workers=args.ray_workers,
        gpus=args.gpus_per_worker,
        packages=args.packages,
        debug=args.debug,
    )


def _go_on(args: argparse.Namespace) -> Optional[str]:
    return "--resume" if can_resume(args.output_file) else None


def _check_inputs_stay(args: argparse.Namespace) -> None:
    """Refuse an output that would replace a file that the command reads."""
    if not os.path.exists(args.output_file):
        return
    model = local_files(args.options_file, args.weight_file)
    for name in (args.input_file, args.vocab_path, *model):
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
