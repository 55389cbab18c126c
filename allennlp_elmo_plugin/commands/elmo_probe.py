"""
The subcommand `elmo-probe` shows which layer of an ELMo knows what: it predicts parts of speech or
word senses from the vectors of each layer.

```
allennlp elmo-probe --elmo my_elmo --task pos --train train.txt --test test.txt --output my_probe
```

writes

- `my_probe/results.json` and `results.md`: the accuracy of each layer, each direction, and of the
  baseline without vectors
- `my_probe/layers.png` (with matplotlib)
"""

import argparse
import importlib.util
import logging
import time
from typing import Any, Dict, List, Optional, Sequence

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.model_arguments import ELMO_HELP
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.whole import output_folder
from allennlp_elmo_plugin.probing.labelled_text import choose, read_sentences
from allennlp_elmo_plugin.probing.probes import TASKS
from allennlp_elmo_plugin.probing.report import draw, markdown
from allennlp_elmo_plugin.probing.run import run

logger = logging.getLogger(__name__)

_OUTPUTS = ("results.json", "results.md", "layers.png")

_DESCRIPTION = """\
Train a probe of each layer of an ELMo, as Peters et al. (2018) do in section 5.3, and print its
accuracy on the test set, beside that of a baseline without vectors: the label that the word (or
lemma) most often has in the training set.

  pos  parts of speech, or any labels of words: a logistic regression, from the vector alone
  wsd  senses: of those that the lemma has in the training set, the one whose mean vector is nearest

The files have a word a line, in columns separated by tabs or white space, and a blank line after
each sentence. --columns names the columns: by default those of CoNLL-2000 and 2003 for pos, and
those of CoNLL-2012 for wsd, with PropBank's senses. Others are:

  pos  CoNLL-2012: 4,5   CoNLL-U: 2,4 (universal tags) or 2,5
  wsd  CoNLL-2012 with OntoNotes' senses: 4,7,9

A word whose label is - or _ is only a context for others.
"""


@Subcommand.register("elmo-probe")
class ElmoProbe(Command):
    """`allennlp elmo-probe --elmo ELMO --task TASK --train FILE --test FILE --output DIR`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help="Predict parts of speech or word senses from each layer of an ELMo.",
        )
        subparser.add_argument("--elmo", required=True, help=ELMO_HELP)
        subparser.add_argument("--task", required=True, choices=list(TASKS))
        for name in ("train", "test"):
            subparser.add_argument(
                f"--{name}", required=True, metavar="PATH", help="file, folder or glob"
            )
        subparser.add_argument("--output", required=True, metavar="DIR", help="new folder")
        subparser.add_argument(
            "--columns",
            type=numbers,
            metavar="N,N[,N]",
            help="columns of the word and its tag (pos; default: 1,2), or of the word, its lemma "
            "and its sense (wsd; default: 4,7,8)",
        )
        subparser.add_argument(
            "--max-examples",
            type=int,
            default=100_000,
            metavar="N",
            help="most examples to train on, drawn at random sentence by sentence; their vectors "
            "are in memory: 3 KB each with small, 12 KB with original",
        )
        subparser.add_argument("--seed", type=int, default=0, help="seed of that draw")
        subparser.add_argument(
            "-f", "--force", action="store_true", help="replace earlier results in DIR"
        )
        return self.finish(subparser, probe_from_args)


def numbers(text: str) -> List[int]:
    return [int(number) for number in text.split(",")]


def probe_from_args(args: argparse.Namespace) -> None:
    """Run the probes of the command's arguments, and print the table."""
    names = ("elmo", "task", "train", "test", "output", "columns", "max_examples", "seed", "force")
    print(probe(**{name: getattr(args, name) for name in names}), end="")


def probe(
    elmo: str,
    task: str,
    train: str,
    test: str,
    output: str,
    columns: Optional[Sequence[int]] = None,
    max_examples: int = 100_000,
    seed: int = 0,
    force: bool = False,
) -> str:
    """
    Probe an ELMo, write the results, and return the table in Markdown. The arguments are those of
    the command.
    """
    start = time.monotonic()
    probe_task = TASKS[task]
    columns = columns or probe_task.columns
    names = probe_task.column_names
    if len(columns) != len(names) or min(columns) < 1:
        raise ConfigurationError(
            f"--columns is {','.join(map(str, columns))}; for --task {task}, give {len(names)} "
            f"numbers from 1: the columns of {', '.join(names)}"
        )
    if max_examples < 1:
        raise ConfigurationError(f"--max-examples is {max_examples}; it must be at least 1")
    with output_folder(output, _OUTPUTS, force) as folder:
        word_key_label = (columns[0], *columns[-2:])  # Of two columns, the word is the key.
        train_sentences = read_sentences(train, word_key_label)
        test_sentences = [each for each in read_sentences(test, word_key_label) if each.examples]
        labels, test_labels = (
            {example.label for sentence in sentences for example in sentence.examples}
            for sentences in (train_sentences, test_sentences)
        )
        if labels.isdisjoint(test_labels):
            raise ConfigurationError(
                f"no {probe_task.label} of {test} occurs in {train}; give files with the same "
                f"{probe_task.label}s. --columns says which columns to read"
            )
        try:
            embedder = ElmoEmbedder(elmo)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"--elmo {elmo}: {error}") from error
        chosen = choose(train_sentences, max_examples, seed)
        results: Dict[str, Any] = {
            "elmo": elmo,
            "task": task,
            "train": train,
            "test": test,
            "columns": columns,
            "max_examples": max_examples,
            "seed": seed,
            **run(probe_task, embedder, chosen, test_sentences),
            "seconds": time.monotonic() - start,
        }
        table = markdown(results)
        (folder / "results.json").write_text(to_json(results), encoding="utf-8")
        (folder / "results.md").write_text(table, encoding="utf-8")
        if importlib.util.find_spec("matplotlib"):
            draw(results, folder / "layers.png")
        else:
            logger.warning(
                "No picture: it needs matplotlib (pip install 'allennlp_elmo_plugin[plot]')"
            )
    return table
