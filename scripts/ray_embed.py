"""
Embed a text with all machines of a Ray cluster, or all GPUs or cores of one machine.

    pip install 'allennlp_elmo_plugin[ray]'
    python scripts/ray_embed.py text.txt layers.hdf5 --top --num-shards 64 --workers 8 --gpus 1 \\
        --options-file options.json --weight-file weights.hdf5

Ray Data deals the shards of the text to workers, each of which loads the model once. A shard is
what `allennlp elmo --num-shards 64 --shard-index I` writes, here to `layers.hdf5.shards/`; at the
end they are joined as by `allennlp elmo-merge`. The result is that of one `allennlp elmo`.

A worker that dies is replaced, and its shard resumed. The same command resumes a stopped run. All
paths must be the same on all machines (a shared file system). Use more shards than workers, so that
none waits long for the last one.
"""

import argparse
import os
from typing import Any, Dict, List, Optional

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_merge import merge
from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import COMPRESSIONS, DTYPES, check_output
from allennlp_elmo_plugin.files.text_lines import open_lines


class ShardEmbedder:
    """
    Embeds shards of a text, one after another, as a Ray worker.

    # Parameters

    text, folder : `str`
        The text, and the folder for the shards.
    model : `Dict[str, Any]`
        Arguments of `ElmoEmbedder`.
    options : `Dict[str, Any]`
        Arguments of `CorpusEmbedder`.
    """

    def __init__(
        self, text: str, folder: str, model: Dict[str, Any], options: Dict[str, Any]
    ) -> None:
        self._text, self._folder, self._options = text, folder, options
        self._embedder = ElmoEmbedder(**model)

    def __call__(self, row: Dict[str, Any]) -> Dict[str, Any]:
        shard = int(row["id"])
        corpus_embedder = CorpusEmbedder(self._embedder, shard_index=shard, **self._options)
        path = shard_path(self._folder, shard)
        with open_lines(self._text, ConfigurationError) as lines:
            summary = corpus_embedder.embed(lines, path, resume=True)
        return {"path": path, "sentences": summary["sentences"]}


def shard_path(folder: str, shard: int) -> str:
    return os.path.join(folder, f"{shard:05}.hdf5")


def embed(
    text: str,
    output: str,
    *,
    model: Dict[str, Any],
    options: Dict[str, Any],
    num_shards: int,
    workers: int,
    gpus: float = 0,
    force: bool = False,
) -> Dict[str, Any]:
    """
    Embed a text in shards and join them.

    # Parameters

    text, output : `str`
        Paths.
    model, options : `Dict[str, Any]`
        See `ShardEmbedder`.
    num_shards, workers : `int`
    gpus : `float`, optional (default = `0`)
        Of each worker.
    force : `bool`, optional (default = `False`)
        Replace the output if it exists.

    # Returns

    `Dict[str, Any]`
        See `elmo_merge.merge`.
    """
    import ray.data

    check_output(output, force)
    folder = os.path.abspath(f"{output}.shards")
    os.makedirs(folder, exist_ok=True)
    options = {**options, "num_shards": num_shards}
    shards = ray.data.range(num_shards, override_num_blocks=num_shards).map(
        ShardEmbedder,
        fn_constructor_args=(os.path.abspath(text), folder, model, options),
        num_gpus=gpus,
        compute=ray.data.ActorPoolStrategy(size=workers),
    )
    parts = sorted(row["path"] for row in shards.iter_rows())
    summary = merge(output, parts, force)
    for part in parts:
        os.remove(part)
    os.rmdir(folder)
    return summary


def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input_file")
    parser.add_argument("output_file")
    layers = parser.add_mutually_exclusive_group(required=True)
    for name in ("all", "top", "average"):
        layers.add_argument(f"--{name}", dest="layers", action="store_const", const=name)
    parser.add_argument("--options-file", required=True)
    parser.add_argument("--weight-file", required=True)
    parser.add_argument("--num-shards", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each worker (default: 0)")
    parser.add_argument("--initial-state", choices=("settled", "zero"), default="settled")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--forget-sentences", action="store_true")
    parser.add_argument("--use-sentence-keys", action="store_true")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--compression", choices=COMPRESSIONS)
    parser.add_argument("-f", "--force", action="store_true")
    args = parser.parse_args(arguments)
    try:
        import ray.data  # noqa: F401
    except ImportError:
        parser.error("this needs Ray: pip install 'allennlp_elmo_plugin[ray]'")
    summary = embed(
        args.input_file,
        args.output_file,
        model={
            "options_file": os.path.abspath(args.options_file),
            "weight_file": os.path.abspath(args.weight_file),
            "cuda_device": 0 if args.gpus else -1,
            "initial_state": args.initial_state,
        },
        options={
            "output_format": args.layers,
            "batch_tokens": args.batch_tokens,
            "forget_sentences": args.forget_sentences,
            "use_sentence_keys": args.use_sentence_keys,
            "dtype": args.dtype,
            "compression": args.compression,
        },
        num_shards=args.num_shards,
        workers=args.workers,
        gpus=args.gpus,
        force=args.force,
    )
    print(f"{summary['sentences']:,} sentences. Written to {args.output_file}")


if __name__ == "__main__":
    main()
