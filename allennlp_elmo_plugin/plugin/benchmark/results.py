"""The folder of a benchmark's results, a file for each finished run, from which it resumes."""

import json
from pathlib import Path
from typing import Any

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.benchmark.configuration import Configuration

Runs = dict[tuple[str, str], list[dict[str, Any]]]
"""By task and model, one of `MODELS`, the results of its seeds."""


def file_of(output: Path, task: str, model: str, seed: int) -> Path:
    """Return the file of a run. The folder beside it, without `.json`, is that of its training."""
    return output / "runs" / task / f"{model}-{seed}.json"


def read_runs(output: Path) -> Runs:
    """Return the finished runs."""
    runs: Runs = {}
    for file in sorted((output / "runs").rglob("*-*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        runs.setdefault((run["task"], run["model"]), []).append(run)
    return runs


def check_output(output: Path, configuration: Configuration, tasks: list[str]) -> None:
    """Refuse a folder with other content than the results of these parameters and data."""
    names = [path.name for path in output.glob("*") if not path.name.startswith(".")]
    if names and "runs" not in names:
        raise ConfigurationError(f"--output {output}: the folder is not empty, and no benchmark")
    for (task, model), runs in read_runs(output).items():
        expected = configuration.digests(task, model) if task in tasks else {}
        for run in runs:
            before = run.get("digests", {})
            changed = [name for name in expected if before.get(name) != expected[name]]
            if changed:
                raise ConfigurationError(
                    f"--output {output}: {file_of(Path(), task, model, run['seed'])} is not of "
                    f"this benchmark: {', '.join(changed)} changed. Choose another folder"
                )
