"""
The subcommand `elmo-plot` draws training runs, the contexts of a word, and how surprising the words
of a text are.

```
allennlp elmo-plot curves my_model --output curves.svg
allennlp elmo-plot map play text.txt --output play.html
allennlp elmo-plot surprise my_model/model.tar.gz text.txt --output surprise.html
```

Pages are single files, which need no network.
"""

import argparse
import importlib.util
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.command import Command, check_in_one_line
from allennlp_elmo_plugin.commands.model_arguments import (
    TEXT_HELP,
    add_device_argument,
    add_model_arguments,
    check_device,
    named_model,
)
from allennlp_elmo_plugin.commands.text_files import reading
from allennlp_elmo_plugin.data.text import find_files
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.text_lines import SentenceLine, split_words
from allennlp_elmo_plugin.files.whole import check_whole_file
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.plots.surprise import write_surprise
from allennlp_elmo_plugin.plots.training_curves import ENDINGS, draw_curves, read_run
from allennlp_elmo_plugin.plots.word_map import MAX_OCCURRENCES, METHODS, make_map, write_map
from allennlp_elmo_plugin.progress import counted

MAX_SENTENCES = 1000
"""Of a longer text, so many sentences from its start are coloured."""


@Subcommand.register("elmo-plot")
class ElmoPlot(Command):
    """`allennlp elmo-plot curves|map|surprise ... --output FILE`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = "Draw training runs, the contexts of a word, and the perplexity of each word."
        subparser = parser.add_parser(self.name, description=description, help=description)
        check_in_one_line(subparser)
        plots = subparser.add_subparsers(title="plots", metavar="PLOT", required=True, dest="plot")

        description = "Draw the perplexities of training runs, epoch by epoch."
        curves = plots.add_parser("curves", description=description, help=description)
        curves.add_argument(
            "runs", nargs="+", metavar="RUN", help="folders of training runs, also unfinished ones"
        )
        _add_output(curves, f"the figure ({', '.join(ENDINGS)})")
        self.finish(curves, curves_from_args)

        description = "Place the occurrences of a word in a text by their vectors in each layer."
        word_map = plots.add_parser("map", description=description, help=description)
        word_map.add_argument("word", metavar="WORD", help="a word as it is written in the text")
        word_map.add_argument("files", nargs="+", metavar="FILES", help=TEXT_HELP)
        _add_output(word_map, "the page (.html)")
        word_map.add_argument(
            "--method", choices=list(METHODS), default="pca", help="how to place; default: pca"
        )
        colours = word_map.add_mutually_exclusive_group()
        colours.add_argument(
            "--groups",
            type=int,
            metavar="N",
            help="how many groups (senses) to find; default: the fewest for which no other number "
            "has a clearly higher silhouette",
        )
        colours.add_argument(
            "--labels",
            action="store_true",
            help="each line of the text is LABEL, a tab and the sentence: colour by these labels "
            "instead of by groups found with k-means",
        )
        word_map.add_argument(
            "--max-occurrences",
            type=int,
            default=MAX_OCCURRENCES,
            metavar="N",
            help="how many occurrences to place, drawn at random (always the same ones) if there "
            f"are more; default: {MAX_OCCURRENCES:,}",
        )
        add_model_arguments(word_map)
        self.finish(word_map, map_from_args)

        description = "Colour each word of a text by its perplexity under a language model."
        surprise = plots.add_parser("surprise", description=description, help=description)
        surprise.add_argument(
            "model",
            metavar="MODEL",
            help="a trained language model with its softmax: model.tar.gz, the folder of a run, or "
            "a folder that `allennlp elmo-export` has written",
        )
        surprise.add_argument("files", nargs="+", metavar="FILES", help=TEXT_HELP)
        _add_output(surprise, "the page (.html)")
        add_device_argument(surprise)
        self.finish(surprise, surprise_from_args)
        return subparser


def _add_output(subparser: argparse.ArgumentParser, what: str) -> None:
    subparser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help=f"{what}; replaced if it exists"
    )


def _check(output: str, endings: Tuple[str, ...], package: str = "") -> None:
    """Check before the work that its result can be written, and that a package is installed."""
    if package and not importlib.util.find_spec(package):
        raise ConfigurationError(
            f"this plot needs {package}: pip install 'allennlp_elmo_plugin[plot]'"
        )
    if not output.lower().endswith(endings):
        raise ConfigurationError(f"--output {output}: the name must end with {', '.join(endings)}")
    check_whole_file(output)


def curves_from_args(args: argparse.Namespace) -> None:
    """Draw the curves of the command's arguments."""
    _check(args.output, ENDINGS, "matplotlib")
    runs = [read_run(folder) for folder in args.runs]
    if len({run.name for run in runs}) < len(runs):
        runs = [run._replace(name=folder) for run, folder in zip(runs, args.runs)]
    draw_curves(runs, args.output)
    print(f"{counted(len(runs), 'run')}. Written to {args.output}")


def map_from_args(args: argparse.Namespace) -> None:
    """Make the map of the command's arguments."""
    _check(args.output, (".html", ".htm"), "plotly")
    check_device(args.cuda_device)
    files = find_files(args.files)
    embedder = ElmoEmbedder(*named_model(args), args.cuda_device)
    labels: Dict[int, str] = {}
    with reading(files) as lines:
        found = make_map(
            embedder,
            args.word,
            _labelled(lines, args.word, labels) if args.labels else (x.words for _, x in lines),
            args.method,
            args.max_occurrences,
            labels.__getitem__ if args.labels else None,
            args.groups,
        )
    write_map(found, args.output, _shown(args.files), args.options_file or "tiny")
    n_groups = counted(len(found.names), "group")
    print(f"{args.word}: {found.how_many}; {n_groups}. Written to {args.output}")


def _labelled(
    lines: Iterator[Tuple[Path, SentenceLine]], word: str, labels: Dict[int, str]
) -> Iterator[List[str]]:
    """Yield the words of each line, and put the labels of those that have the word in `labels`."""
    for number, (file, line) in enumerate(lines):
        label, tab, sentence = line.sentence.partition("\t")
        if not tab and line.words:
            raise ConfigurationError(
                f"{file}, line {line.number + 1}: with --labels, each line must be LABEL, a tab "
                f"and the sentence, and this one is {line.sentence[:40]!r}"
            )
        words = split_words(sentence.encode())
        if word in words:
            labels[number] = label.strip() or "no label"
        yield words


def surprise_from_args(args: argparse.Namespace) -> None:
    """Make the page of the command's arguments."""
    _check(args.output, (".html", ".htm"))
    check_device(args.cuda_device)
    files = find_files(args.files)
    model = read_pretrained(args.model)
    with reading(files) as lines:
        with_words = (line.words for _, line in lines if line.words)
        sentences = list(islice(with_words, MAX_SENTENCES + 1))
    if not sentences:
        raise ConfigurationError(f"{', '.join(args.files)}: has no words; give a tokenised text")
    how_many = counted(min(len(sentences), MAX_SENTENCES), "sentence")
    if len(sentences) > MAX_SENTENCES:
        how_many = f"the first {how_many}"
    title = f"{args.model} on {how_many} of {_shown(args.files)}"
    device = "cpu" if args.cuda_device < 0 else f"cuda:{args.cuda_device}"
    found = write_surprise(model, sentences[:MAX_SENTENCES], args.output, title, device)
    perplexities = ", ".join(f"{name} {value:,.2f}" for name, value in found.items())
    print(f"{how_many}, perplexity: {perplexities}. Written to {args.output}")


def _shown(files: List[str]) -> str:
    """Return what the text is called on a page."""
    names = [Path(file).name or file for file in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
