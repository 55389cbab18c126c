"""The subcommand `elmo-perplexity` measures a language model on a text."""

import argparse
from typing import Any

from allennlp_elmo_plugin.analysis.sentence_probabilities import write_scores
from allennlp_elmo_plugin.commands import command
from allennlp_elmo_plugin.files.atomic import check_writable
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import evaluation_settings
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.language_model import read_model
from allennlp_elmo_plugin.progress import counted
from allennlp_elmo_plugin.training.evaluation import evaluate, metrics_table
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.text_batches import TextBatches


class ElmoPerplexity(command.Command):
    """
    Measure the perplexity of a text under a language model.

      %(prog)s my_elmo heldout.txt

    prints what validation during training, and `allennlp evaluate`, give: the perplexity of both
    directions together and of each, and the share of unknown words. MODEL needs its softmax. Each
    TEXT has a column; a folder or a glob in quotes is one text.

      %(prog)s my_elmo sentences.txt --scores scores.tsv

    writes a row for each line instead: its natural log-probability, as the mean of the directions
    and of each, and its perplexity. Each sentence starts without context.
    """

    name = "elmo-perplexity"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        command.add_positional_model(parser, f"with its softmax: {command.MODEL_HELP}")
        add("text", nargs="+", metavar="TEXT", help=command.TEXT_HELP)
        batch_help = "sentences that are read side by side; default: as in validation, or 128"
        add("--batch-size", type=command.positive, metavar="N", help=batch_help)
        add("--scores", metavar="FILE", help="table (TSV) to write, with a row for each sentence")
        add("--words", action="store_true", help="--scores has a row for each word")
        command.add_cuda_device(parser)

    def run(self, args: argparse.Namespace) -> None:
        if args.words and not args.scores:
            raise ValueError("--words needs --scores FILE")
        if args.batch_size and args.scores:
            raise ValueError("scores don't depend on --batch-size; leave it out")
        with find_model(args.model, for_training=True) as files:
            model = read_model(files)
            settings = evaluation_settings(files.options.parent, model.options)
        device = command.device_of(args)
        _, words = model.parts_that_predict()
        if args.scores:
            check_writable(args.scores)
            sentences = (line.words for _, line in command.read_lines(args.text))
            n = write_scores(model, sentences, args.scores, args.words, device)
            print(f"{counted(n, 'sentence')}. Written to {args.scores}")
            return
        if args.batch_size:
            settings["batch_size"] = args.batch_size
        options = model.options
        texts = {
            path: TextBatches(
                path,
                words,
                max_characters_per_token=options.max_characters_per_token,
                bidirectional=options.bidirectional,
                drop_last=False,
                device=device,
                **settings,
            )
            for path in args.text
        }
        # Evaluation never samples.
        trained = LanguageModel(options.to_dict(), words, pretrained=model, num_samples=0)
        columns: dict[str, dict[str, Any]] = {}
        for path, text in texts.items():
            columns[path] = {**evaluate(trained.to(device), text)}
            # Perplexities of other batch sizes can't be compared with these.
            columns[path].update(
                predicted_words=trained.n_predicted_words, batch_size=text.batch_size
            )
        print(metrics_table(columns))
