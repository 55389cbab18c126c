"""
The subcommand `elmo-benchmark` shows whether an ELMo helps: it trains small task models with and
without it, with several seeds, and compares their scores on the test sets. With `--vectors` there
is a second baseline, with word vectors.

```
allennlp elmo-benchmark --tasks sst5,ner --elmo my_elmo --data my_data --output my_benchmark
```

writes

- `my_benchmark/results.md` and `results.json`: the table
- `my_benchmark/scores.png`, `curves.png`, `layer_weights.png` (with matplotlib)
- `my_benchmark/runs/TASK/MODEL-SEED.json`: each run, with digests of what it was made from

The same command resumes an interrupted benchmark. Standard output is the table, standard error the
progress.
"""

import argparse
import importlib.util
import logging
import shutil
import time
from pathlib import Path
from typing import List, Optional, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common import plugins
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.commands.model_arguments import ELMO_HELP
from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.locks import locked_folder
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.progress import bars_on_terminals_only, say

logger = logging.getLogger(__name__)

CONFIG_FOLDER = CONFIGS / "benchmark"


@Subcommand.register("elmo-benchmark")
class ElmoBenchmark(Command):
    """`allennlp elmo-benchmark --tasks TASKS --elmo ELMO --data DIR --output DIR`"""

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Train task models with and without an ELMo, and compare their scores. The same "
            "command resumes an interrupted benchmark."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "--tasks",
            required=True,
            help="names of folders in --data, separated by commas; a kind (sst5, ner, chunking, "
            "snli, srl, coref, squad, imdb, constituency) means the folders KIND and KIND_*",
        )
        subparser.add_argument("--elmo", required=True, help=ELMO_HELP)
        subparser.add_argument(
            "--data",
            type=Path,
            required=True,
            metavar="DIR",
            help="a folder for each task; in it train, dev and test, each with any ending",
        )
        subparser.add_argument(
            "--vectors",
            type=Path,
            metavar="FILE",
            help="word vectors in the text format of GloVe or word2vec, best of the ELMo's text: a "
            "second baseline with them, to which ELMo is added then",
        )
        subparser.add_argument("--seeds", type=int, default=3, help="trainings of each model")
        subparser.add_argument(
            "--output", type=Path, required=True, metavar="DIR", help="new folder"
        )
        subparser.add_argument(
            "--configs",
            type=Path,
            default=CONFIG_FOLDER,
            metavar="DIR",
            help="folder with KIND.jsonnet and KIND_elmo.jsonnet",
        )
        subparser.add_argument(
            "-o", "--overrides", default="{}", help="JSON that changes all configs, as in train"
        )
        return self.finish(subparser, benchmark_from_args, _resume)


def benchmark_from_args(args: argparse.Namespace) -> None:
    """Run the benchmark of the command's arguments, and print the table."""
    plugins.import_plugins()  # The task models are those of allennlp-models.
    tasks = [name.strip() for name in args.tasks.split(",") if name.strip()]
    table = benchmark(
        tasks,
        args.elmo,
        args.data,
        args.output,
        args.seeds,
        args.configs,
        args.overrides,
        args.vectors,
    )
    print(table)


def _resume(args: argparse.Namespace) -> Optional[str]:
    return "" if (args.output / "runs").exists() else None


def benchmark(
    tasks: List[str],
    elmo: str,
    data: Path,
    output: Path,
    seeds: int = 3,
    configs: Path = CONFIG_FOLDER,
    overrides: str = "{}",
    vectors: Optional[Path] = None,
) -> str:
    """
    Run what is missing of a benchmark, write its results, and return the table in Markdown. The
    arguments are those of the command; each model is trained with seeds 1 to `seeds`.
    """
    # These import models of allennlp-models, which is slow.
    from allennlp_elmo_plugin.benchmark import report, results
    from allennlp_elmo_plugin.benchmark.cached_bilm import VectorsOfModels
    from allennlp_elmo_plugin.benchmark.configuration import Configuration
    from allennlp_elmo_plugin.benchmark.run import run
    from allennlp_elmo_plugin.benchmark.task import MODELS, find_tasks, kind_of

    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}, but at least one training is needed")
    found = find_tasks(data, tasks)
    configuration = Configuration(found, elmo, configs, overrides, vectors)
    results.check_output(output, configuration, list(found))
    runs = [
        (task, model, seed)
        for task in found
        for seed in range(1, seeds + 1)
        for model in reversed(configuration.models)  # More can be wrong with ELMo.
    ]
    todo = [each for each in runs if not results.file_of(output, *each).exists()]
    configuration.check(list(dict.fromkeys(task for task, _, _ in todo)))
    output.mkdir(parents=True, exist_ok=True)
    refusal = ConfigurationError(
        f"--output {output}: another elmo-benchmark works there; wait for its end, or choose "
        "another folder"
    )
    with locked_folder(output, refusal):
        start = time.monotonic()
        computed: Tuple[str, VectorsOfModels] = ("", {})
        for n_done, (task, model, seed) in enumerate(todo, start=1):
            if computed[0] != task:
                computed = (task, {})
            file = results.file_of(output, task, model, seed)
            folder = file.with_suffix("")
            shutil.rmtree(folder, ignore_errors=True)  # of a training that was stopped
            folder.mkdir(parents=True)
            with bars_on_terminals_only(Tqdm):
                params = configuration.params(task, model, seed)
                result = run(kind_of(task), params, folder, computed[1])
            digests = configuration.digests(task, model)
            whole = {"task": task, "model": model, "seed": seed, "digests": digests, **result}
            with whole_file(file) as staged:
                Path(staged).write_text(to_json(whole), encoding="utf-8")
            shutil.rmtree(folder)
            report.write_tables(output)
            minutes = (time.monotonic() - start) / 60
            say(
                f"{len(runs) - len(todo) + n_done} of {len(runs)}: {task} {MODELS[model]}, seed "
                f"{seed}: {result['score']:.2f} after {result['epochs']} epochs; about "
                f"{minutes / n_done * (len(todo) - n_done):.0f} min left"
            )
        table = report.write_tables(output)
        if importlib.util.find_spec("matplotlib"):
            report.draw(output)
        else:
            logger.warning(
                "No pictures: they need matplotlib (pip install 'allennlp_elmo_plugin[plot]')"
            )
    return table
