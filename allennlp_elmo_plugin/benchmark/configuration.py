"""Configurations of the runs of a benchmark, and what their results depend on."""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import parse_overrides
from allennlp.data import DatasetReader

from allennlp_elmo_plugin.benchmark.data_folder import kind_of
from allennlp_elmo_plugin.benchmark.results_folder import MODELS
from allennlp_elmo_plugin.common.elmo_files import OPTIONS_NAME, WEIGHTS_NAME
from allennlp_elmo_plugin.common.jsonnet import elmo_model
from allennlp_elmo_plugin.modules.elmo import _ElmoBiLm


class Configuration:
    """
    The configurations of the models of each task.

    # Parameters

    tasks : `Dict[str, Dict[str, Path]]`
        The data, see `find_tasks`.
    elmo : `str`
        What `ELMO` is for `training_config/elmo.libsonnet`.
    folder : `Path`
        With `KIND.jsonnet` and `KIND_elmo.jsonnet`.
    overrides : `str`
        JSON that changes all configurations.

    # Raises

    `ConfigurationError`, or `FileNotFoundError`, that names the argument and what is wrong with it.
    """

    def __init__(
        self, tasks: Dict[str, Dict[str, Path]], elmo: str, folder: Path, overrides: str
    ) -> None:
        if not elmo:
            raise ConfigurationError("--elmo is empty; give a folder, or a published model's name")
        try:
            elmo_model(elmo)
        except ValueError as error:
            raise ConfigurationError(f"--elmo {elmo}: {error}") from error
        try:
            no_mapping = not isinstance(parse_overrides(overrides), dict)
        except RuntimeError as error:
            raise ConfigurationError(f"--overrides {overrides}: {_first_line(error)}") from error
        if no_mapping:
            raise ConfigurationError(f"--overrides {overrides}: it must be a JSON object, {{...}}")
        self._tasks = tasks
        self._elmo = elmo
        self._folder = folder
        self._overrides = overrides

    def params(self, task: str, model: str, seed: int) -> Params:
        """
        # Parameters

        task : `str`
        model : `str`
            `baseline` or `elmo`.
        seed : `int`

        # Returns

        `Params`
            For `allennlp train`.

        # Raises

        `ConfigurationError`
            The file is bad, or its data are not those of `tasks`.
        """
        path = self._folder / f"{kind_of(task)}{'_elmo' if model == 'elmo' else ''}.jsonnet"
        data = {split: str(place) for split, place in self._tasks[task].items()}
        variables = {f"{split.upper()}_DATA_PATH": place for split, place in data.items()}
        try:
            params = Params.from_file(
                str(path), self._overrides, ext_vars={**variables, "ELMO": self._elmo}
            )
        except FileNotFoundError as error:
            raise FileNotFoundError(f"--configs {self._folder}: there is no {path}") from error
        except RuntimeError as error:  # of jsonnet: the message, and where it was called
            raise ConfigurationError(f"{path}: {_first_line(error)}") from error
        for split, place in data.items():
            key = f"{split}_data_path"
            if params.get(key) != place:
                raise ConfigurationError(
                    f"{path} with --overrides has the {key} {params.get(key)!r}, but the data must "
                    f"be those of --data, {place}"
                )
        for key in ("random_seed", "numpy_seed", "pytorch_seed"):
            params[key] = seed
        return params

    def settings(self) -> Dict[str, Any]:
        """
        What the results depend on.

        # Returns

        `Dict[str, Any]`
            `elmo`, the content of the ELMo or the name of a published one, and by task `tasks`,
            each with `data` (by split), `baseline` and `elmo` (the configurations).
        """
        tasks: Dict[str, Any] = {}
        for task, paths in self._tasks.items():
            tasks[task] = {"data": {split: _digest_of(path) for split, path in paths.items()}}
            for model in MODELS:
                params = _without_paths(self.params(task, model, 0).as_dict(quiet=True))
                tasks[task][model] = _digest(json.dumps(params, sort_keys=True).encode())
        elmo = Path(self._elmo).expanduser()
        return {"elmo": _digest_of(elmo) if elmo.is_dir() else self._elmo, "tasks": tasks}

    def check(self, tasks: List[str]) -> None:
        """
        Reads the weights of each ELMo and the first instance of each file.

        # Raises

        `ConfigurationError`, of the ELMo or the file.
        """
        read = set()
        for task in tasks:
            for files in _elmo_files(self.params(task, "elmo", 0).as_dict(quiet=True)):
                if files not in read:
                    _ElmoBiLm(*files)
                    read.add(files)
            params = self.params(task, "baseline", 0)
            train_reader = params.pop("dataset_reader")
            other_reader = params.pop("validation_dataset_reader", train_reader.duplicate())
            for split, path in self._tasks[task].items():
                reader_params = train_reader if split == "train" else other_reader
                reader = DatasetReader.from_params(reader_params.duplicate())
                if next(iter(reader.read(str(path))), None) is None:
                    raise ConfigurationError(
                        f"{path}: AllenNLP's reader {reader_params['type']!r} finds nothing in it "
                        "to train or test with"
                    )


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[0]


def _elmo_files(value: Any) -> Iterator[Tuple[str, str]]:
    """The files of each ELMo in a configuration."""
    if isinstance(value, dict):
        if "options_file" in value and "weight_file" in value:
            yield value["options_file"], value["weight_file"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _elmo_files(item)


def _without_paths(value: Any) -> Any:
    """A configuration without the places of data and ELMo, whose contents count instead."""
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
