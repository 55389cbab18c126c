"""The subcommand `elmo` writes the layers of a language model for each sentence to HDF5."""

import argparse
import os
import time
from datetime import timedelta
from typing import Any

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.commands.command import (
    Command,
    add_model_arguments,
    device_of,
    positive,
)
from allennlp_elmo_plugin.elmo.elmo_bilm import INITIAL_STATES
from allennlp_elmo_plugin.embedding.batches import POOLINGS
from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder, check_output
from allennlp_elmo_plugin.embedding.embedder import DEFAULT_INITIAL_STATE, ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import COMPRESSIONS, DTYPES
from allennlp_elmo_plugin.embedding.parts import PartsFolder
from allennlp_elmo_plugin.embedding.ray_workers import embed_parts
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.text.lines import open_lines

# The options that are arguments of `ElmoEmbedder` and of `CorpusEmbedder`
_OF_MODEL = ("options_file", "weight_file", "initial_state", "precision")
_OF_CORPUS = (
    *("output_format", "batch_size", "batch_tokens", "forget_sentences", "use_sentence_keys"),
    *("include_sentence_indices", "dtype", "compression", "num_shards", "pooling"),
)


class Elmo(Command):
    """
    Write the layers of a pretrained language model for sentences to HDF5.

    The file appears when it is complete. It has a dataset for each sentence, named by the number of
    its line ("0", "1", ...; read them by number, as HDF5 lists "10" before "2"), and
    "sentence_to_index", a JSON object that maps sentences to names.

    The text is embedded in parts of 32,768 words, which are kept in the folder output_file.parts:
    after a kill or a full disk, --resume continues. With --num-shards N, N processes with the same
    output_file share the parts, and the one that finishes last joins them.

    --ray-workers embeds the parts with Ray (pip install ray), on all cores or GPUs of a machine or
    of a cluster with a shared file system.
    """

    name = "elmo"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("input_file", help="UTF-8 text, plain or gzip, a tokenised sentence a line; - is stdin")
        add("output_file", type=os.path.expanduser, help="HDF5 file to write")
        layers = parser.add_mutually_exclusive_group()
        layer: dict[str, Any] = {"dest": "output_format", "action": "store_const"}
        shape = "shape (tokens, dimensions)"
        all_help = "all layers (default), that without context first: (layers, tokens, dimensions)"
        layers.add_argument("--all", const="all", help=all_help, **layer)
        layers.add_argument("--top", const="top", help=f"the last LSTM layer: {shape}", **layer)
        average_help = f"the mean of all layers: {shape}"
        layers.add_argument("--average", const="average", help=average_help, **layer)
        parser.set_defaults(output_format="all")
        pool_help = "write one vector for each sentence, as the rows of the dataset vectors"
        add("--pool", dest="pooling", choices=list(POOLINGS), help=pool_help)
        add("--vocab-path", metavar="FILE", help="words to encode in advance, with the same result")
        add_model_arguments(parser)
        add("--batch-size", type=int, help="most sentences at once; default: 64 if carried")
        add("--batch-tokens", type=int, default=4096, help="most tokens at once, unless carried")
        precision_help = "bfloat16 is faster on processors that have it; errors are about 0.2%%"
        add("--precision", choices=PRECISIONS, default="float32", help=precision_help)
        add(
            "--initial-state",
            choices=INITIAL_STATES,
            default=DEFAULT_INITIAL_STATE,
            help="state at the start of a sentence: the one after the sentences before (carried: "
            "as in AllenNLP 0.9, batches of --batch-size lines in their order), the one in which "
            "the model settles when it reads only sentence boundaries (settled), or zero",
        )
        add("--forget-sentences", action="store_true", help="leave out sentence_to_index")
        add("--use-sentence-keys", action="store_true", help="use sentences as keys, if all differ")
        add("--include-sentence-indices", action="store_true", help="write sentence_indices, too")
        add("--dtype", choices=DTYPES, default="float32", help="numbers to write")
        add("--compression", choices=COMPRESSIONS, help="only h5py reads lzf, which is faster")
        help = "replace the output file if it exists; shards keep one of this text and settings"
        add("-f", "--force", action="store_true", help=help)
        add("--resume", action="store_true", help="continue a run that did not finish, if any")
        add("--num-shards", type=int, default=1, metavar="N", help="embed one Nth of the text")
        add("--shard-index", type=int, default=0, metavar="I", help="which Nth, from 0 to N - 1")
        add("--ray-workers", type=positive, metavar="N", help="embed all shards with N Ray workers")
        gpus_help = "instead of a core; a fraction lets workers share a GPU"
        add("--gpus-per-worker", type=float, default=0, metavar="X", help=gpus_help)
        add("--file-friendly-logging", action="store_true", help="a line for each state of the bar")

    def resume(self, args: argparse.Namespace) -> list[str] | None:
        if not PartsFolder(args.output_file).has_parts():
            return None
        return [] if args.resume else ["--resume"]

    def run(self, args: argparse.Namespace) -> None:
        if args.ray_workers is not None:
            if args.cuda_device not in (None, -1):
                raise ValueError("Ray chooses GPUs: give --gpus-per-worker, not --cuda-device")
            if args.shard_index:
                raise ValueError("Ray's workers embed all shards: leave out --shard-index")
            args.cuda_device = -1
            args.num_shards = max(args.num_shards, args.ray_workers, 2)
        elif args.gpus_per_worker:
            raise ValueError("--gpus-per-worker needs --ray-workers; without Ray, --cuda-device")
        resume = args.resume or args.num_shards > 1  # A shard continues with the others' parts.
        check_output(args.output_file, args.force or resume, resume)
        inputs = args.input_file, args.vocab_path, args.options_file, args.weight_file
        existing = filter(os.path.exists, map(os.fspath, filter(None, inputs)))
        if os.path.exists(args.output_file) and any(
            os.path.samefile(args.output_file, path) for path in existing
        ):
            raise ValueError(f"{args.output_file} is an input, too; choose another output")
        model = {name: getattr(args, name) for name in _OF_MODEL}
        if args.vocab_path is not None:
            with open_lines(args.vocab_path) as lines:
                model["vocab_to_cache"] = [word for line in lines for word in line.words]
        options = {name: getattr(args, name) for name in _OF_CORPUS}
        start = time.monotonic()
        with open_lines(args.input_file) as lines:
            embedder = ElmoEmbedder(**model, device=device_of(args))
            corpus_embedder = CorpusEmbedder(embedder, **options, shard_index=args.shard_index)
            if args.ray_workers is not None:
                if args.force and not args.resume:
                    PartsFolder(args.output_file).remove()
                # Otherwise, `embed` checks whether it is complete.
                if args.force or not os.path.exists(args.output_file):
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
            summary = corpus_embedder.embed(lines, args.output_file, args.force, args.resume)
        seconds = time.monotonic() - start
        text = f"{counted(summary['sentences'], 'sentence')}, {counted(summary['tokens'], 'word')}"
        if summary["missing_parts"]:
            missing = counted(summary["missing_parts"], "part")
            print(f"{text}. This shard is complete; other shards lack {missing}")
            return
        # Ray's workers have embedded all that this process has not.
        n = corpus_embedder.n_embedded if args.ray_workers is None else summary["tokens"]
        if n < summary["tokens"]:
            text += f", of which {summary['tokens'] - n:,} were embedded before,"
        text += f" in {timedelta(seconds=round(seconds))} ({n / seconds:,.0f} words/s)"
        megabytes = os.path.getsize(args.output_file) / 1e6
        print(f"{text}, {megabytes:,.1f} MB. Written to {args.output_file}")
