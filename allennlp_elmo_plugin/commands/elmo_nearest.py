"""
The subcommand `elmo-nearest` shows the senses of a word: the occurrences in a text whose vectors
are most alike.

```
allennlp elmo-nearest bank text.txt
allennlp elmo-nearest bank text.txt --query "She rowed to the other bank ."
allennlp elmo-nearest bank text.txt --layers layers.hdf5
```
"""

import argparse
from functools import partial
from typing import Callable, List

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.model_arguments import (
    add_model_arguments,
    check_device,
    named_model,
)
from allennlp_elmo_plugin.commands.text_files import reading
from allennlp_elmo_plugin.data.text import find_files
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.nearest import MAX_OCCURRENCES, Neighbours, nearest
from allennlp_elmo_plugin.embedding.occurrences import read_vectors
from allennlp_elmo_plugin.files.text_lines import split_words

_DESCRIPTION = """\
Show the senses of a word: for the word in a query, the occurrences in a text whose vectors are most
like that one, each with its similarity (from -1 to 1) and its context.

Without --query, the occurrences in the text are divided into two groups, and the one in the middle
of each group is a query.
"""


@Subcommand.register("elmo-nearest")
class ElmoNearest(Command):
    """`allennlp elmo-nearest WORD FILES... [--query SENTENCE]... [--options-file MODEL]`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help="Show the occurrences of a word that have similar vectors.",
        )
        subparser.add_argument("word", metavar="WORD", help="a word as it is written in the text")
        subparser.add_argument(
            "files",
            nargs="+",
            metavar="FILES",
            help="tokenised text, one sentence a line, plain or gzip: files, folders or globs",
        )
        subparser.add_argument(
            "--query",
            dest="queries",
            action="append",
            metavar="SENTENCE",
            help="a tokenised sentence that has the word; may be given several times",
        )
        subparser.add_argument(
            "-n",
            "--number",
            type=int,
            default=5,
            metavar="N",
            help="how many occurrences to show for each query; default: 5",
        )
        subparser.add_argument(
            "--max-occurrences",
            type=int,
            default=MAX_OCCURRENCES,
            metavar="N",
            help="how many occurrences to compare, drawn at random if there are more; default: "
            f"{MAX_OCCURRENCES:,}",
        )
        subparser.add_argument(
            "--layers",
            metavar="HDF5",
            help="what `allennlp elmo` has written of this text: take the vectors from there, "
            "without a model",
        )
        add_model_arguments(subparser)
        return self.finish(subparser, nearest_from_args)


def nearest_from_args(args: argparse.Namespace) -> None:
    """Find the neighbours with the command's arguments, and print them."""
    if args.layers and (args.queries or args.options_file or args.weight_file):
        raise ConfigurationError("--layers has the vectors of the text alone: omit query and model")
    check_device(args.cuda_device)
    queries = args.queries and [split_words(query.encode()) for query in args.queries]
    files = find_files(args.files)
    find: Callable[..., List[Neighbours]]
    if args.layers:
        find = partial(nearest, partial(read_vectors, args.layers))
    else:
        find = ElmoEmbedder(*named_model(args), args.cuda_device).nearest
    with reading(files) as lines:
        sentences = (line.words for _, line in lines)
        found = find(args.word, sentences, queries, args.number, args.max_occurrences)
    print("\n\n".join(map(str, found)))
