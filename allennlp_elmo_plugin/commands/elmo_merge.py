"""
The subcommand `elmo-merge` joins the outputs of `allennlp elmo --num-shards N --shard-index I`.
"""

import argparse
import json
import os
from contextlib import ExitStack
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import h5py
from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.embedding.corpus_embedder import (
    OWN_SETTINGS,
    SHARD_LINES,
    is_there_already,
)
from allennlp_elmo_plugin.embedding.layers_file import LayersFile, check_output, read_summary
from allennlp_elmo_plugin.files.hdf5_file import open_weight_file
from allennlp_elmo_plugin.progress import counted, progress_bar

_DESCRIPTION = """\
Join the files that `allennlp elmo --num-shards N --shard-index I` has written for I from 0 to
N - 1: the result is the file that one run over the whole text would have written. The parts, in any
order, must be of one text, one model and the same options.
"""

_TOTALS = ("sentences", "tokens", "seconds")


@Subcommand.register("elmo-merge")
class ElmoMerge(Command):
    """`allennlp elmo-merge OUTPUT PARTS...`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help="Join the HDF5 files of `allennlp elmo --num-shards`.",
        )
        subparser.add_argument("output_file", metavar="OUTPUT", help="HDF5 file to write")
        subparser.add_argument("parts", nargs="+", metavar="PARTS", help="one file of each shard")
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace the output file if it exists"
        )
        return self.finish(subparser, merge_from_args)


def merge_from_args(args: argparse.Namespace) -> None:
    """Run `merge` with the command's arguments."""
    args.output_file = os.path.expanduser(args.output_file)
    summary = merge(args.output_file, args.parts, args.force)
    megabytes = os.path.getsize(args.output_file) / 1e6
    print(
        f"{counted(summary['sentences'], 'sentence')}, {counted(summary['tokens'], 'word')} of "
        f"{len(args.parts)} parts, {megabytes:,.1f} MB. Written to {args.output_file}"
    )


def merge(output: str, parts: Sequence[str], force: bool = False) -> Dict[str, Any]:
    """
    Join the files of all shards, `parts`, in any order. `force` replaces an existing output.

    # Returns

    `Dict[str, Any]`
        The summary of the output, as `ElmoEmbedder.embed_file` returns it.

    # Raises

    `ConfigurationError`
        The parts don't fit together, or the output exists.
    """
    check_output(output, force)
    for part in parts:
        if os.path.exists(output) and os.path.exists(part) and os.path.samefile(part, output):
            raise ConfigurationError(f"{part} is the output and a part; choose another output")
    summaries = [_read_summary(part) for part in parts]
    order = _check_parts(parts, summaries)
    parts, summaries = [parts[i] for i in order], [summaries[i] for i in order]
    settings = {**summaries[0], "num_shards": 1, "shard_index": 0}
    summary = {key: settings.pop(key) for key in ("lines", "checksum", *_TOTALS)}
    summary.update({key: sum(each[key] for each in summaries) for key in _TOTALS})
    compression = settings["compression"]
    with (
        LayersFile(output, force, settings=settings, compression=compression) as file,
        ExitStack() as stack,
    ):
        # The parts may be a stranger's.
        sources = [stack.enter_context(open_weight_file(part)) for part in parts]
        if settings["keys"] == "sentences":
            _copy_sentences(file, sources, parts, summary["sentences"])
        else:
            _copy_lines(file, sources, parts, summary["lines"], settings["mappings"])
        file.finish(summary)
    return {**settings, **summary}


def _read_summary(part: str) -> Dict[str, Any]:
    summary = read_summary(part) if os.path.isfile(part) else None
    if summary is not None and _is_of_this_version(summary):
        return summary
    if os.path.exists(part):
        raise ConfigurationError(
            f"{part} is no file that `allennlp elmo` of this version has written"
        )
    if os.path.exists(f"{part}.partial"):
        raise ConfigurationError(
            f"{part} is not complete; run its `allennlp elmo` command again, with --resume"
        )
    raise ConfigurationError(f"there is no file {part} to read")


def _is_of_this_version(summary: Dict[str, Any]) -> bool:
    mappings = summary.get("mappings")
    return (
        all(type(summary.get(key)) is int for key in ("shard_index", "num_shards", "lines"))
        and all(type(summary.get(key)) in (int, float) for key in _TOTALS)
        and {"checksum", "compression", "keys"} <= summary.keys()
        and isinstance(mappings, list)
        and all(isinstance(name, str) for name in mappings)
    )


def _check_parts(parts: Sequence[str], summaries: List[Dict[str, Any]]) -> List[int]:
    """Return the indices of the parts of shard 0, of shard 1, ..."""
    first = summaries[0]
    for part, summary in zip(parts, summaries):
        keys = {*first, *summary} - {*OWN_SETTINGS, *_TOTALS}
        for key in sorted(keys, key=lambda key: (key == "checksum", key)):
            if summary.get(key) != first.get(key):
                what = {"lines": "the number of lines", "checksum": "the text's checksum"}
                raise ConfigurationError(
                    f"{part} does not fit {parts[0]}: {what.get(key, key)} is {summary.get(key)!r} "
                    f"in the one and {first.get(key)!r} in the other; give parts of one text, made "
                    "with the same model and options"
                )
    places: Dict[int, int] = {}
    for i, summary in enumerate(summaries):
        other = places.setdefault(summary["shard_index"], i)
        if other != i:
            raise ConfigurationError(
                f"{parts[i]} and {parts[other]} are both shard {summary['shard_index']}; give one "
                "of them"
            )
    # A stranger's file may have a number too large to list them all.
    shards = range(min(first["num_shards"], len(parts) + 16))
    missing = [index for index in shards if index not in places]
    if missing:
        raise ConfigurationError(
            f"the text was divided into {first['num_shards']} shards, and there is no part of "
            f"shard {', '.join(map(str, missing))}; make it with --shard-index {missing[0]}"
        )
    return [places[index] for index in range(first["num_shards"])]


def _copy_lines(
    file: LayersFile, sources: List[Any], parts: Sequence[str], n_lines: int, mappings: List[str]
) -> None:
    pairs = [_pairs(source, mappings) for source in sources]
    with progress_bar(total=n_lines, unit=" sentences", desc="merging") as bar:
        for number in range(n_lines):
            shard = number // SHARD_LINES % len(sources)
            key = str(number)
            if key not in sources[shard]:
                raise ConfigurationError(
                    f"{parts[shard]} is damaged: it has no {key!r}; make it anew"
                )
            file.copy_from(sources[shard], key)
            if mappings:
                sentence, mapped = next(pairs[shard], (None, None))
                if sentence is None or mapped != key:
                    raise ConfigurationError(
                        f"{parts[shard]} is damaged: its {mappings[0]} lacks {key!r}; make it anew"
                    )
                file.add_mapping(sentence, key)
            bar.update()
    if mappings:
        file.write_mapping(mappings)


def _pairs(source: Any, mappings: List[str]) -> Iterator[Tuple[Optional[str], Optional[str]]]:
    """Yield sentences and keys of the mapping in the order of the text, repeated ones too."""
    if not mappings:
        return
    text = source[mappings[0]][0]
    text = text.decode("ascii") if isinstance(text, bytes) else text
    decode = json.JSONDecoder().raw_decode
    position = 1
    while text[position] != "}":
        sentence, position = decode(text, position)
        key, position = decode(text, position + len(": "))
        yield sentence, key
        if text[position] == ",":
            position += len(", ")


def _copy_sentences(
    file: LayersFile, sources: List[Any], parts: Sequence[str], n_sentences: int
) -> None:
    with progress_bar(total=n_sentences, unit=" sentences", desc="merging") as bar:
        for source, part in zip(sources, parts):

            def copy(key: str, item: Any, source: Any = source, part: str = part) -> None:
                if isinstance(item, h5py.Dataset):
                    sentence = item.attrs.get("sentence", key)
                    if not is_there_already(file, key, sentence, part, carried=False):
                        file.copy_from(source, key)
                    bar.update()

            source.visititems(copy)
