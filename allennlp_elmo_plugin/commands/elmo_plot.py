"""The subcommand `elmo-plot` makes figures and pages, each a single file."""

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice

from allennlp_elmo_plugin.analysis import word_map
from allennlp_elmo_plugin.analysis.figures import ENDINGS, PAGE_ENDINGS, is_page
from allennlp_elmo_plugin.analysis.surprise import write_surprise
from allennlp_elmo_plugin.analysis.training_curves import draw_curves, read_run
from allennlp_elmo_plugin.commands import command
from allennlp_elmo_plugin.files.atomic import check_writable
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.text.lines import split_words

MAX_SENTENCES = 1000
_PAGE_HELP = f"the page (.html) or figure ({', '.join(ENDINGS)}); replaced if it exists"


class Curves(command.Command):
    """Draw the perplexities of training runs, epoch by epoch."""

    name = "curves"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("runs", nargs="+", metavar="RUN", help="folders of training runs, also unfinished ones")
        help = f"the figure ({', '.join(ENDINGS)}); replaced if it exists"
        add("-o", "--output", required=True, metavar="FILE", help=help)

    def run(self, args: argparse.Namespace) -> None:
        _check_output(args.output, ENDINGS, "matplotlib")
        draw_curves({folder: read_run(folder) for folder in args.runs}, args.output)
        print(f"{counted(len(args.runs), 'run')}. Written to {args.output}")


class Map(command.Command):
    """Place the occurrences of a word in a text by their vectors in each layer."""

    name = "map"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("-o", "--output", required=True, metavar="FILE", help=_PAGE_HELP)
        add("--method", choices=[*word_map.METHODS], default="pca", help="how to place the vectors")
        colours = parser.add_mutually_exclusive_group()
        groups_help = "how many groups (senses) to find; default: what has a high silhouette"
        colours.add_argument("--groups", type=command.positive, metavar="N", help=groups_help)
        labels_help = "lines are LABEL, a tab and the sentence; colours are labels, not groups"
        colours.add_argument("--labels", action="store_true", help=labels_help)
        command.add_word_arguments(parser, word_map.MAX_OCCURRENCES)

    def run(self, args: argparse.Namespace) -> None:
        package = "plotly" if is_page(args.output) else "matplotlib"
        _check_output(args.output, (*PAGE_ENDINGS, *ENDINGS), package, "scikit-learn")
        labels: list[str] = []
        asked = args.word, _sentences(args, labels), args.method, args.max_occurrences
        result = word_map.make_map(command.embedder(args), *asked, labels, args.groups)
        write = word_map.write_map if package == "plotly" else word_map.write_figure
        write(result, args.output, ", ".join(args.files), args.options_file or "tiny")
        n_groups = counted(len(result.names), "group")
        print(f"{args.word}: {result.how_many}; {n_groups}. Written to {args.output}")


def _sentences(args: argparse.Namespace, labels: list[str]) -> Iterator[list[str]]:
    """Yield the words of each line; with `--labels`, append its label to `labels` first."""
    for file, line in command.read_lines(args.files):
        if not args.labels:
            yield line.words
            continue
        label, tab, sentence = line.sentence.partition("\t")
        if line.words and not tab:
            where = f"{file}, line {line.number + 1}"
            raise ValueError(f"{where}: with --labels, a line is LABEL, a tab and the sentence")
        labels.append(label.strip() or "no label")
        yield split_words(sentence.encode())


class Surprise(command.Command):
    """Colour each word of a text, its first 1,000 sentences (a figure: 25), by its perplexity."""

    name = "surprise"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        model_help = "model.tar.gz, the folder of a run, or of an export with its softmax"
        command.add_positional_model(parser, model_help)
        add("files", nargs="+", metavar="FILES", help=command.TEXT_HELP)
        add("-o", "--output", required=True, metavar="FILE", help=_PAGE_HELP)
        command.add_cuda_device(parser)

    def run(self, args: argparse.Namespace) -> None:
        packages = [] if is_page(args.output) else ["matplotlib"]
        _check_output(args.output, (*PAGE_ENDINGS, *ENDINGS), *packages)
        model = read_pretrained(args.model)
        with_words = (line.words for _, line in command.read_lines(args.files) if line.words)
        sentences = list(islice(with_words, 25 if packages else MAX_SENTENCES))
        files, how_many = ", ".join(args.files), counted(len(sentences), "sentence")
        if not sentences:
            raise ValueError(f"{files}: has no words; give a tokenised text")
        title = f"{args.model} on {how_many} of {files}"
        device = command.device_of(args)
        perplexities = write_surprise(model, sentences, args.output, title, device)
        listed = ", ".join(f"{name} {value:,.2f}" for name, value in perplexities.items())
        print(f"{how_many}, perplexity: {listed}. Written to {args.output}")


class ElmoPlot(command.Command):
    """
    Draw training runs, the contexts of a word, and the perplexity of each word.

      %(prog)s curves my_model --output curves.svg
      %(prog)s map play text.txt --output play.html
      %(prog)s surprise my_elmo text.txt --output surprise.html
    """

    name = "elmo-plot"

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser = self.add_parser(parser)
        plots = subparser.add_subparsers(title="plots", metavar="PLOT", required=True, dest="plot")
        for plot in (Curves(), Map(), Surprise()):
            plot.add_subparser(plots)
        return subparser


def _check_output(output: str, endings: Sequence[str], *packages: str) -> None:
    """Check before the work that its result can be written, and that packages are installed."""
    command.check_installed(*packages)
    if not output.lower().endswith(tuple(endings)):
        raise ValueError(f"--output {output}: the name must end with {', '.join(endings)}")
    check_writable(output)
