"""
The subcommand `elmo-benchmark` says whether an ELMo helps: it trains small task models with and
without it, with several seeds, and compares their scores on the test sets.

```
allennlp elmo-benchmark --tasks sst5,ner --elmo my_elmo --data my_data --output my_benchmark
```

writes

- `my_benchmark/results.md` and `results.json`: the table
- `my_benchmark/scores.png`, `curves.png`, `layer_weights.png` (with matplotlib)
- `my_benchmark/runs/TASK/MODEL-SEED.json`: each run

The same command again goes on where it was stopped.
"""

import argparse
import hashlib
import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from allennlp.commands.subcommand import Subcommand
from allennlp.common import Params
from allennlp.common import logging as common_logging
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins
from filelock import FileLock, Timeout

from allennlp_elmo_plugin.common.elmo_files import OPTIONS_NAME, WEIGHTS_NAME

if TYPE_CHECKING:
    from allennlp_elmo_plugin.benchmark.report import Runs

logger = logging.getLogger(__name__)

_SETTINGS = "settings.json"
CONFIG_FOLDER = Path(__file__).resolve().parents[2] / "training_config" / "benchmark"


@Subcommand.register("elmo-benchmark")
class ElmoBenchmark(Subcommand):
    """
    `allennlp elmo-benchmark --tasks TASKS --elmo ELMO --data DIR --output DIR`
    """

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        description = (
            "Train task models with and without an ELMo, and compare their scores. The same "
            "command again goes on where it was stopped."
        )
        subparser = parser.add_parser(self.name, description=description, help=description)
        subparser.add_argument(
            "--tasks",
            required=True,
            help="names of folders in --data, separated by commas; a kind (sst5, ner, chunking, "
            "snli, srl, coref, squad) means the folders KIND and KIND_*",
        )
        subparser.add_argument(
            "--elmo",
            required=True,
            help="folder with options.json and weights.hdf5, or the name of a published model",
        )
        subparser.add_argument(
            "--data",
            required=True,
            metavar="DIR",
            help="a folder for each task; in it train, dev and test, each with any ending",
        )
        subparser.add_argument(
            "--seeds", type=int, default=3, help="trainings of each model (default: 3)"
        )
        subparser.add_argument("--output", required=True, metavar="DIR", help="new folder")
        subparser.add_argument(
            "--configs",
            default=str(CONFIG_FOLDER),
            metavar="DIR",
            help="folder with KIND.jsonnet and KIND_elmo.jsonnet (default: the repository's "
            "training_config/benchmark)",
        )
        subparser.add_argument(
            "-o", "--overrides", default="{}", help="JSON that changes all configs, as in train"
        )
        subparser.set_defaults(func=benchmark_from_args)
        return subparser


def benchmark_from_args(args: argparse.Namespace) -> None:
    """Converts the command's arguments to those of `benchmark`, and prints the table."""
    common_logging.FILE_FRIENDLY_LOGGING = True
    logging.disable(logging.WARNING)
    import_plugins()
    print(
        benchmark(
            [name.strip() for name in args.tasks.split(",") if name.strip()],
            args.elmo,
            Path(args.data),
            Path(args.output),
            seeds=args.seeds,
            configs=Path(args.configs),
            overrides=args.overrides,
        )
    )


def benchmark(
    tasks: List[str],
    elmo: str,
    data: Path,
    output: Path,
    seeds: int = 3,
    configs: Path = CONFIG_FOLDER,
    overrides: str = "{}",
) -> str:
    """
    # Parameters

    tasks : `List[str]`
        See `find_tasks`.
    elmo : `str`
        What `ELMO` is for `training_config/elmo.libsonnet`.
    data, output, configs : `Path`
        Folders. `output` is new, or that of the same benchmark, which then goes on.
    seeds : `int`, optional (default = `3`)
        Each model is trained with seeds 1 to `seeds`.
    overrides : `str`, optional (default = `"{}"`)
        JSON that changes all configurations.

    # Returns

    `str`
        The table, in Markdown.

    # Raises

    `ConfigurationError`
        Data are missing or bad; `output` has results of another ELMo, config or data; or another
        process works there.
    """
    if seeds < 1:
        raise ConfigurationError(f"--seeds is {seeds}, but at least one training is needed")
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"--output {output}: a file, where a folder is needed")
    # Hidden: of a start that failed.
    visible = [path for path in output.glob("*") if not path.name.startswith(".")]
    if visible and not (output / _SETTINGS).exists():
        raise ConfigurationError(f"--output {output}: the folder is not empty, and no benchmark")
    output.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(output / ".lock"), timeout=0):
            return _benchmark(tasks, elmo, data, output, seeds, configs, overrides)
    except Timeout:
        raise ConfigurationError(
            f"--output {output}: another elmo-benchmark works there; wait for its end, or choose "
            "another folder"
        ) from None


def _benchmark(
    tasks: List[str],
    elmo: str,
    data: Path,
    output: Path,
    seeds: int,
    configs: Path,
    overrides: str,
) -> str:
    # These load models of allennlp-models, which is slow.
    from allennlp_elmo_plugin.benchmark.cached_bilm import Vectors
    from allennlp_elmo_plugin.benchmark.data_folder import find_tasks, kind_of
    from allennlp_elmo_plugin.benchmark.report import MODELS
    from allennlp_elmo_plugin.benchmark.run import run

    found = find_tasks(data, tasks)
    _check_settings(output, _settings(found, elmo, configs, overrides))
    todo = [
        (task, model, seed)
        for task in found
        for seed in range(1, seeds + 1)
        for model in MODELS
        if not _result_file(output, task, model, seed).exists()
    ]
    n_done, n_runs, start = 0, len(found) * seeds * len(MODELS), time.monotonic()
    vectors: Tuple[str, Vectors] = ("", {})
    for task, model, seed in todo:
        if vectors[0] != task:
            vectors = (task, {})
        result_file = _result_file(output, task, model, seed)
        folder = result_file.with_suffix("")
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
        folder.mkdir(parents=True)
        params = _params(task, model, seed, found[task], elmo, configs, overrides)
        result: Dict[str, Any] = {"task": task, "model": model, "seed": seed}
        result.update(run(kind_of(task), params, folder, vectors[1]))
        _write(result_file, json.dumps(result, indent=2))
        shutil.rmtree(folder)
        _write_tables(output)
        n_done += 1
        minutes = (time.monotonic() - start) / 60
        print(
            f"{n_runs - len(todo) + n_done} of {n_runs}: {task} {MODELS[model]}, seed {seed}: "
            f"{result['score']:.2f} after {result['epochs']} epochs; about "
            f"{minutes / n_done * (len(todo) - n_done):.0f} min left",
            flush=True,
        )
    return _report(output)


def _params(
    task: str,
    model: str,
    seed: int,
    paths: Dict[str, Path],
    elmo: str,
    configs: Path,
    overrides: str,
) -> Params:
    from allennlp_elmo_plugin.benchmark.data_folder import kind_of

    suffix = "_elmo" if model == "elmo" else ""
    variables = {f"{split.upper()}_DATA_PATH": str(path) for split, path in paths.items()}
    params = Params.from_file(
        str(configs / f"{kind_of(task)}{suffix}.jsonnet"),
        overrides,
        ext_vars={**variables, "ELMO": elmo},
    )
    for key in ("random_seed", "numpy_seed", "pytorch_seed"):
        params[key] = seed
    return params


def _result_file(output: Path, task: str, model: str, seed: int) -> Path:
    return output / "runs" / task / f"{model}-{seed}.json"


def _settings(
    tasks: Dict[str, Dict[str, Path]], elmo: str, configs: Path, overrides: str
) -> Dict[str, Any]:
    """What a run depends on, by task; results of other settings must not be mixed with them."""
    settings: Dict[str, Any] = {}
    for task, paths in tasks.items():
        evaluated = {}
        for model in ("baseline", "elmo"):
            params = _params(task, model, 0, paths, elmo, configs, overrides).as_dict(quiet=True)
            evaluated[model] = _without_paths(params)
        settings[task] = {
            "config": _digest(json.dumps(evaluated, sort_keys=True).encode()),
            "data": {split: _digest_of(path) for split, path in paths.items()},
        }
    return {
        "elmo": _digest_of(Path(elmo)) if Path(elmo).is_dir() else elmo,
        "tasks": settings,
    }


def _without_paths(value: Any) -> Any:
    """A config without the places of data and ELMo, whose contents count instead."""
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_paths(item)
        for key, item in value.items()
        if not key.endswith("_data_path") and key not in ("options_file", "weight_file")
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _digest_of(path: Path) -> str:
    """Of a file, the files of an ELMo or the data of a folder, whatever their names."""
    names = (OPTIONS_NAME, WEIGHTS_NAME)
    files = [path / name for name in names if (path / name).exists()]
    files = files or (sorted(path.rglob("*")) if path.is_dir() else [path])
    return _digest(b"".join(file.read_bytes() for file in files if file.is_file()))


def _check_settings(output: Path, settings: Dict[str, Any]) -> None:
    """Compares with what the results in `output` were made with, and writes down what is new."""
    before: Dict[str, Any] = {"elmo": settings["elmo"], "tasks": {}}
    if (output / _SETTINGS).exists():
        before = _read(output / _SETTINGS)
    # What has no result may change.
    before["tasks"] = {
        task: found for task, found in before["tasks"].items() if _result_files(output, task)
    }
    changed = []
    if before["tasks"] and before["elmo"] != settings["elmo"]:
        changed.append("--elmo")
    for task, found in settings["tasks"].items():
        for what in ("config", "data"):
            if before["tasks"].get(task, found)[what] != found[what]:
                changed.append(f"{what} of {task}")
    if changed:
        raise ConfigurationError(
            f"--output {output}: its results are not of this benchmark: {', '.join(changed)} "
            "changed. Choose another folder"
        )
    before["elmo"] = settings["elmo"]
    before["tasks"].update(settings["tasks"])
    _write(output / _SETTINGS, json.dumps(before, indent=2))


def _report(output: Path) -> str:
    """Writes tables and pictures of all finished runs in the folder."""
    from allennlp_elmo_plugin.benchmark.report import draw

    runs, rows, table = _write_tables(output)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("No pictures: they need matplotlib (pip install 'allennlp_elmo_plugin[plot]')")
        return table
    draw(rows, runs, output)
    return table


def _write_tables(output: Path) -> Tuple["Runs", List[Dict[str, Any]], str]:
    from allennlp_elmo_plugin.benchmark.report import Runs, markdown, summarize

    runs: Runs = {}
    for file in _result_files(output):
        result = _read(file)
        runs.setdefault((result["task"], result["model"]), []).append(result)
    rows = summarize(runs)
    table = markdown(rows)
    _write(output / "results.json", json.dumps(rows, indent=2))
    _write(output / "results.md", table)
    return runs, rows, table


def _result_files(output: Path, task: str = "") -> List[Path]:
    return sorted((output / "runs" / task).rglob("*-*.json"))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{path}: no JSON ({error}); remove it to go on") from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
