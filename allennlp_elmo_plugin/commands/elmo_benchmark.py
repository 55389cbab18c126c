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
- `my_benchmark/runs/TASK/MODEL-SEED.json`: each run

The same command resumes an interrupted benchmark. Standard output is the table, standard error the
progress.
"""

import argparse
import logging
import time
from pathlib import Path
from typing import List, Optional, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common import plugins
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from allennlp_elmo_plugin.commands.command import Command
from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.modules.elmo_files import SHORT_NAMES
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
        subparser.add_argument(
            "--elmo",
            required=True,
            help="folder with options.json and weights.hdf5, an archive (.zip, model.tar.gz), or "
            f"the short name of a model ({', '.join(SHORT_NAMES)})",
        )
        subparser.add_argument(
            "--data",
            required=True,
            metavar="DIR",
            help="a folder for each task; in it train, dev and test, each with any ending",
        )
        subparser.add_argument(
            "--vectors",
            metavar="FILE",
            help="word vectors in the text format of GloVe or word2vec, best of the ELMo's text: a "
            "second baseline with them, to which ELMo is added then",
        )
        subparser.add_argument("--seeds", type=int, default=3, help="trainings of each model")
        subparser.add_argument("--output", required=True, metavar="DIR", help="new folder")
        subparser.add_argument(
            "--configs",
            default=str(CONFIG_FOLDER),
            metavar="DIR",
            help="folder with KIND.jsonnet and KIND_elmo.jsonnet",
        )
        subparser.add_argument(
            "-o", "--overrides", default="{}", help="JSON that changes all configs, as in train"
        )
        return self.finish(subparser, benchmark_from_args, _resume)


def benchmark_from_args(args: argparse.Namespace) -> None:
    """Run the benchmark of the command's arguments, and print the table."""
    # The task models are those of allennlp-models.
    plugins.import_plugins()
    print(
        benchmark(
            [name.strip() for name in args.tasks.split(",") if name.strip()],
            args.elmo,
            Path(args.data),
            Path(args.output),
            seeds=args.seeds,
            configs=Path(args.configs),
            overrides=args.overrides,
            vectors=None if args.vectors is None else Path(args.vectors),
        )
    )


def _resume(args: argparse.Namespace) -> Optional[str]:
    from allennlp_elmo_plugin.benchmark.results_folder import SETTINGS_FILE

    return "" if (Path(args.output) / SETTINGS_FILE).exists() else None


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
    from allennlp_elmo_plugin.benchmark.cached_bilm import VectorsOfModels
    from allennlp_elmo_plugin.benchmark.configuration import Configuration
    from allennlp_elmo_plugin.benchmark.data_folder import find_tasks, kind_of
    from allennlp_elmo_plugin.benchmark.report import draw, write_tables
    from allennlp_elmo_plugin.benchmark.results_folder import MODELS, ResultsFolder
    from allennlp_elmo_plugin.benchmark.run import run

    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}, but at least one training is needed")
    folder = ResultsFolder(output)
    found = find_tasks(data, tasks)
    configuration = Configuration(found, elmo, configs, overrides, vectors)
    settings = configuration.settings(found)
    is_new = not output.exists()
    if is_new:  # A mistake should not leave a folder behind.
        configuration.check(list(found))
    with folder.locked():
        folder.set_settings(settings)
        runs = [
            (task, model, seed)
            for task in found
            for seed in range(1, seeds + 1)
            for model in reversed(configuration.models)  # More can be wrong with ELMo.
        ]
        todo = [each for each in runs if not folder.has_run(*each)]
        if not is_new:
            configuration.check(list(dict.fromkeys(task for task, _, _ in todo)))
        start = time.monotonic()
        computed: Tuple[str, VectorsOfModels] = ("", {})
        for n_done, (task, model, seed) in enumerate(todo, start=1):
            if computed[0] != task:
                computed = (task, {})
            title = (
                f"{len(runs) - len(todo) + n_done} of {len(runs)}: {task} {MODELS[model]}, seed "
                f"{seed}"
            )
            with bars_on_terminals_only(Tqdm):
                result = run(
                    kind_of(task),
                    configuration.params(task, model, seed),
                    folder.new_training(task, model, seed),
                    computed[1],
                )
            folder.add_run(task, model, seed, result)
            write_tables(folder)
            minutes = (time.monotonic() - start) / 60
            say(
                f"{title}: {result['score']:.2f} after {result['epochs']} epochs; about "
                f"{minutes / n_done * (len(todo) - n_done):.0f} min left"
            )
        rows, table = write_tables(folder)
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            logger.warning(
                "No pictures: they need matplotlib (pip install 'allennlp_elmo_plugin[plot]')"
            )
            return table
        draw(rows, folder.read_runs(), folder.path)
        return table
