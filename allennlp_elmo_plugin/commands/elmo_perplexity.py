"""The subcommand `elmo-perplexity` measures a language model on a text."""

import argparse
from pathlib import Path

from allennlp_elmo_plugin.commands.command import ELMO_HELP, TEXT_HELP, Command, add_cuda_device
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import evaluation_settings
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.language_model import read_model
from allennlp_elmo_plugin.training.evaluation import evaluate, metrics_table
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.text_batches import TextBatches


class ElmoPerplexity(Command):
    """
    Measure the perplexity of a text under a language model.

      allennlp-elmo-plugin elmo-perplexity my_elmo heldout.txt

    prints what validation during training, and `allennlp evaluate`, give: the perplexity of both
    directions together and of each, and the share of unknown words. MODEL needs its softmax.
    """

    name = "elmo-perplexity"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("model", metavar="MODEL", help=f"model.tar.gz, the folder of a run, or a {ELMO_HELP}")
        add("text", nargs="+", metavar="TEXT", help=TEXT_HELP)
        add_cuda_device(parser)

    def run(self, args: argparse.Namespace) -> None:
        with find_model(args.model, for_training=True) as files:
            model = read_model(files)
            settings = evaluation_settings(files.options.parent, model.options)
        if model.softmax is None or model.words is None:
            raise ValueError(f"{args.model}: has no softmax, which predicts words; train one first")
        options = model.options
        device = "cpu" if args.cuda_device < 0 else f"cuda:{args.cuda_device}"
        text = TextBatches(
            args.text,
            model.words,
            max_characters_per_token=options.max_characters_per_token,
            bidirectional=options.bidirectional,
            drop_last=False,
            device=device,
            **settings,
        )
        # Evaluation never samples.
        trained = LanguageModel(options.to_dict(), model.words, pretrained=model, num_samples=0)
        metrics = evaluate(trained.to(device), text)
        # Perplexities of other batch sizes can't be compared with these.
        counts = {"predicted_words": trained.n_predicted_words, "batch_size": text.batch_size}
        print(metrics_table({Path(args.text[0]).name: {**metrics, **counts}}))
