"""The command `elmo-benchmark` shows whether an ELMo improves task models."""

import argparse
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

from allennlp.common import plugins
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from allennlp_elmo_plugin.commands.command import ELMO_HELP, Command, positive
from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.files.atomic import write_text
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.locks import locked
from allennlp_elmo_plugin.progress import progress_bar


class ElmoBenchmark(Command):
    """
    Train task models with and without an ELMo, and compare their scores.

      %(prog)s --tasks sst5,ner --model my_elmo --data my_data --output my_benchmark

    writes results.md, results.json and runs/TASK/MODEL-SEED.json in my_benchmark and, if matplotlib
    is installed, pictures of the scores and layer weights. The same command resumes. With
    --vectors, the word vectors are a second baseline, to which ELMo is added.

    --data has a folder for each task with train, dev and test, which may have any ending. --tasks
    names these folders, separated by commas. A kind (sst5, ner, chunking, snli, srl, coref, squad,
    imdb, constituency) stands for the folders KIND and KIND_*.
    """

    name = "elmo-benchmark"
    mistakes = (*Command.mistakes, ConfigurationError)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--tasks", required=True, help="folders in --data, or kinds of tasks")
        add("--model", "--elmo", required=True, dest="elmo", metavar="NAME", help=ELMO_HELP)
        add("--data", type=Path, required=True, metavar="DIR", help="folder of the tasks' folders")
        add("--vectors", type=Path, metavar="FILE", help="word vectors of GloVe or word2vec (text)")
        add("--seeds", type=positive, default=3, help="trainings of each model")
        add("--output", type=Path, required=True, metavar="DIR", help="new folder")
        configs_help = "folder with KIND.jsonnet and KIND_elmo.jsonnet"
        add("--configs", type=Path, default=CONFIGS / "benchmark", metavar="DIR", help=configs_help)
        add("-o", "--overrides", default="{}", help="JSON that changes all configs, as in train")

    def resume(self, args: argparse.Namespace) -> list[str] | None:
        return [] if (args.output / "runs").exists() else None

    def run(self, args: argparse.Namespace) -> None:
        plugins.import_plugins()  # The task models are those of allennlp-models.
        from allennlp_elmo_plugin.plugin.benchmark import report, run
        from allennlp_elmo_plugin.plugin.benchmark.cached_bilm import Vectors
        from allennlp_elmo_plugin.plugin.benchmark.configuration import Configuration
        from allennlp_elmo_plugin.plugin.benchmark.task import MODELS, find_tasks, kind_of

        output = args.output
        tasks = find_tasks(args.data, args.tasks.replace(" ", "").split(","))
        configuration = Configuration(tasks, args.elmo, args.configs, args.overrides, args.vectors)
        report.check_output(output, configuration, list(tasks))
        runs = {
            (task, model, seed): report.file_of(output, task, model, seed)
            for task in tasks
            for seed in range(1, args.seeds + 1)
            for model in reversed(configuration.models)  # ELMo is first: more can go wrong.
        }
        todo = {key: file for key, file in runs.items() if not file.exists()}
        configuration.check(list(dict.fromkeys(task for task, _, _ in todo)))
        output.mkdir(parents=True, exist_ok=True)
        with (
            locked(output / ".run.lock"),
            progress_bar(total=len(runs), initial=len(runs) - len(todo), unit="run") as bar,
            patch.object(Tqdm, "tqdm", partial(Tqdm.tqdm, disable=True)),
        ):
            before = None
            for (task, model, seed), file in todo.items():
                if task != before:
                    before, vectors = task, Vectors(output)
                folder = file.with_suffix("")
                shutil.rmtree(folder, ignore_errors=True)  # of a training that was stopped
                folder.mkdir(parents=True)
                bar.set_description(f"{task} {MODELS[model]}, seed {seed}")
                params = configuration.params(task, model, seed)
                result = {"task": task, "model": model, "seed": seed}
                result["digests"] = configuration.digests(task, model)
                result.update(run.run(kind_of(task), params, folder, vectors))
                write_text(file, to_json(result))
                shutil.rmtree(folder)
                report.write_tables(output)
                score = f"{MODELS[model]} {result['score']:.2f}"
                bar.set_postfix_str(f"{score} after {result['epochs']} epochs")
                bar.update()
            with suppress(ImportError):  # of matplotlib
                report.draw(output)
        print(report.write_tables(output))
