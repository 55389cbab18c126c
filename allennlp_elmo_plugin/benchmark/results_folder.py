"""The folder of a benchmark's results, from which it resumes."""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.locks import locked_folder
from allennlp_elmo_plugin.files.whole import whole_file

Runs = Dict[Tuple[str, str], List[Dict[str, Any]]]
"""By task and model, one of `MODELS`, the results of its seeds."""

MODELS = {"baseline": "baseline", "vectors": "word vectors", "elmo": "+ ELMo"}
"""
With learned words; with word vectors, if there are any (`--vectors`); and the last of these with
ELMo.
"""

SETTINGS_FILE = "settings.json"


class ResultsFolder:
    """
    The folder of a benchmark: a file for each finished run, and the settings of all of them.

    # Parameters

    path : `Path`
        A new folder, or that of a benchmark.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise ConfigurationError(f"--output {path}: a file, where a folder is needed")
        # Refuse early: otherwise the error comes after all data have been read.
        above = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not above.is_dir():
            raise ConfigurationError(f"--output {path}: {above} is a file; choose another folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ConfigurationError(f"--output {path}: nothing can be written to {above}")
        # A start that failed may leave hidden files.
        visible = [item for item in path.glob("*") if not item.name.startswith(".")]
        if visible and not (path / SETTINGS_FILE).exists():
            raise ConfigurationError(f"--output {path}: the folder is not empty, and no benchmark")
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out, and remove what a killed one left beside finished runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        refusal = ConfigurationError(
            f"--output {self.path}: another elmo-benchmark works there; wait for its end, or "
            "choose another folder"
        )
        with locked_folder(self.path, refusal):
            for file in self._files():
                shutil.rmtree(file.with_suffix(""), ignore_errors=True)
            yield

    def has_run(self, task: str, model: str, seed: int) -> bool:
        return self._file_of(task, model, seed).exists()

    def new_training(self, task: str, model: str, seed: int) -> Path:
        """Return an empty folder for AllenNLP, without what a stopped run left."""
        folder = self._file_of(task, model, seed).with_suffix("")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def add_run(self, task: str, model: str, seed: int, result: Dict[str, Any]) -> None:
        """Write the result of a training, and remove its folder."""
        file = self._file_of(task, model, seed)
        run = {"task": task, "model": model, "seed": seed, **result}
        self.write(str(file.relative_to(self.path)), to_json(run))
        shutil.rmtree(file.with_suffix(""))

    def read_runs(self) -> Runs:
        """Return the finished runs."""
        runs: Runs = {}
        for file in self._files():
            run = json.loads(file.read_text(encoding="utf-8"))
            runs.setdefault((run["task"], run["model"]), []).append(run)
        return runs

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as staged:
            Path(staged).write_text(text, encoding="utf-8")

    def set_settings(self, settings: Dict[str, Any]) -> None:
        """Write `Configuration.settings`, unless those of runs that are finished have changed."""
        before: Dict[str, Any] = {"elmo": "", "tasks": {}}
        with_vectors = ("vectors", "elmo")
        if (self.path / SETTINGS_FILE).exists():
            before = json.loads((self.path / SETTINGS_FILE).read_text(encoding="utf-8"))
        changed = []
        if before["elmo"] != settings["elmo"] and self._files(model="elmo"):
            changed.append("--elmo")
        if before.get("vectors") != settings.get("vectors"):
            if any(self._files(model=model) for model in with_vectors):
                changed.append("--vectors")
        for task, found in settings["tasks"].items():
            earlier = before["tasks"].get(task, {})
            if self._files(task) and earlier.get("data") != found["data"]:
                changed.append(f"data of {task}")
            for model, name in MODELS.items():
                # They are parts of the config.
                if model == "elmo" and "--elmo" in changed:
                    continue
                if model in with_vectors and "--vectors" in changed:
                    continue
                if self._files(task, model) and earlier.get(model) != found.get(model):
                    changed.append(f"config of {task}, {name}")
        if changed:
            raise ConfigurationError(
                f"--output {self.path}: its results are not of this benchmark: "
                f"{', '.join(changed)} changed. Choose another folder"
            )
        tasks = {**before["tasks"], **settings["tasks"]}
        self.write(SETTINGS_FILE, to_json({**settings, "tasks": tasks}))

    def _file_of(self, task: str, model: str, seed: int) -> Path:
        return self.path / "runs" / task / f"{model}-{seed}.json"

    def _files(self, task: Optional[str] = None, model: str = "*") -> List[Path]:
        return sorted((self.path / "runs").glob(f"{task or '**'}/{model}-*.json"))
