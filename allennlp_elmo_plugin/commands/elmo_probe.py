"""The subcommand `elmo-probe` shows which layer of an ELMo knows what."""

import argparse
from contextlib import suppress

from allennlp_elmo_plugin.analysis.labelled_text import choose, read_sentences
from allennlp_elmo_plugin.analysis.probing import TASKS, draw, markdown, run
from allennlp_elmo_plugin.commands import command
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.atomic import output_folder, write_text
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.text.corpus import find_files


class ElmoProbe(command.Command):
    """
    Predict parts of speech or word senses from each layer of an ELMo.

    Train a probe of each layer, as Peters et al. (2018) do in section 5.3, and print its accuracy
    on the test set, beside that of a baseline without vectors: the label that the word (or lemma)
    most often has in training. DIR gets results.json, results.md and, with matplotlib, layers.png.

      pos  parts of speech, or any labels of words: a logistic regression from the vector alone
      wsd  senses: the one with the nearest mean vector of those that the lemma has in training

    The files have a word a line, in columns, and a blank line after each sentence. A word whose
    label is - or _ is only a context for others. By default, the columns are those of CoNLL-2000
    and 2003 (pos) or CoNLL-2012 with PropBank's senses (wsd). Others:

      pos  CoNLL-2012: 4,5   CoNLL-U: 2,4 (universal tags) or 2,5
      wsd  CoNLL-2012 with OntoNotes' senses: 4,7,9
    """

    name = "elmo-probe"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--model", "--elmo", required=True, dest="elmo", metavar="NAME", help=command.ELMO_HELP)
        add("--task", required=True, choices=list(TASKS))
        add("--train", required=True, metavar="PATH", help="file, folder or glob")
        add("--test", required=True, metavar="PATH", help="file, folder or glob")
        add("--output", required=True, metavar="DIR", help="new folder")
        columns_help = "of the word, the lemma (wsd) and the label; default: 1,2 (pos), 4,7,8 (wsd)"
        add("--columns", type=numbers, metavar="N,N[,N]", help=columns_help)
        most_help = "most examples to train on, drawn at random; each takes 3 KB (small) to 12 KB"
        add("--max-examples", type=command.positive, default=100_000, metavar="N", help=most_help)
        add("--seed", type=int, default=0, help="seed of that draw")
        command.add_cuda_device(parser)
        add("-f", "--force", action="store_true", help="replace earlier results in DIR")

    def run(self, args: argparse.Namespace) -> None:
        command.check_installed("scikit-learn")
        task = TASKS[args.task]
        args.columns = args.columns or task.columns
        if len(args.columns) != len(task.columns) or min(args.columns) < 1:
            raise ValueError(f"--columns: give {len(task.columns)} numbers, from 1")
        outputs = ("results.json", "results.md", "layers.png")
        settings = ("elmo", "task", "train", "test", "columns", "max_examples", "seed")
        with output_folder(args.output, outputs, args.force) as folder:
            # Of two columns, the word is the key.
            columns = (args.columns[0], *args.columns[-2:])
            train, test = (read_sentences(find_files(p), columns) for p in (args.train, args.test))
            train = choose(train, args.max_examples, args.seed)
            results = {name: getattr(args, name) for name in settings}
            results.update(
                run(task, ElmoEmbedder(args.elmo, device=command.device_of(args)), train, test)
            )
            table = markdown(results)
            write_text(folder / "results.json", to_json(results))
            write_text(folder / "results.md", table)
            with suppress(ImportError):  # of matplotlib
                draw(results, folder / "layers.png")
        print(table, end="")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
