"""The subcommand `elmo-nearest` shows the senses of a word."""

import argparse

from allennlp_elmo_plugin.commands import command
from allennlp_elmo_plugin.embedding.nearest import MAX_OCCURRENCES, nearest, read_vectors
from allennlp_elmo_plugin.text.lines import split_words


class ElmoNearest(command.Command):
    """
    Show the occurrences of a word that have similar vectors.

      %(prog)s bank text.txt
      %(prog)s bank text.txt --query "She rowed to the other bank ."
      %(prog)s bank text.txt --layers layers.hdf5

    For the word in a query, show the occurrences in a text whose vectors are most similar to that
    of the query, each with its similarity, the cosine (-1 to 1) of their vectors less the mean of
    all, and its context. Without --query, the occurrences are divided into two groups, and the one
    in the middle of each group is a query.
    """

    name = "elmo-nearest"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        query_help = "a tokenised sentence that has the word; may be given several times"
        add("--query", dest="queries", action="append", metavar="SENTENCE", help=query_help)
        add(
            "-n",
            "--number",
            type=command.positive,
            default=5,
            metavar="N",
            help="how many to show for a query",
        )
        layers_help = "take the vectors from what `elmo` wrote of this text"
        add("--layers", metavar="HDF5", help=layers_help)
        command.add_word_arguments(parser, MAX_OCCURRENCES)

    def run(self, args: argparse.Namespace) -> None:
        if args.layers and (args.queries or args.options_file or args.weight_file):
            raise ValueError("--layers has the vectors of the text alone: omit query and model")
        queries = args.queries and [split_words(query.encode()) for query in args.queries]
        sentences = (line.words for _, line in command.read_lines(args.files))
        asked = args.word, sentences, queries, args.number, args.max_occurrences
        if args.layers:
            tables = nearest(lambda places: read_vectors(args.layers, places), *asked)
        else:
            tables = command.embedder(args).nearest(*asked)
        print("\n\n".join(map(str, tables)))
