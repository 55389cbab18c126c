"""The configurations of a benchmark's runs, and digests of what their results depend on."""

import hashlib
import inspect
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional, Set, Tuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import parse_overrides
from allennlp.data import DatasetReader
from allennlp.training import Trainer

from allennlp_elmo_plugin.benchmark.data_folder import kind_of
from allennlp_elmo_plugin.benchmark.results_folder import MODELS
from allennlp_elmo_plugin.benchmark.word_vectors import check_word_vectors
from allennlp_elmo_plugin.files.json_file import did_you_mean
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_files import (
    elmo_sections,
    file_names,
    is_short_name,
    local_files,
)
from allennlp_elmo_plugin.patches.jsonnet import elmo_model

_BLOCK_BYTES = 2**20
_SEEDS = ("random_seed", "numpy_seed", "pytorch_seed")


class Configuration:
    """
    The configurations of the models of each task.

    # Parameters

    tasks : `Dict[str, Dict[str, Path]]`
        What `find_tasks` returns.
    elmo : `str`
        The value of `ELMO` for `training_config/elmo.libsonnet`.
    folder : `Path`
        The folder with `KIND.jsonnet` and `KIND_elmo.jsonnet`.
    overrides : `str`
        JSON that changes all configurations.
    vectors : `Path`, optional (default = `None`)
        The word vectors of the models `vectors` and `elmo`.
    """

    def __init__(
        self,
        tasks: Dict[str, Dict[str, Path]],
        elmo: str,
        folder: Path,
        overrides: str,
        vectors: Optional[Path] = None,
    ) -> None:
        if not elmo:
            raise ConfigurationError("--elmo is empty; give a folder, or a published model's name")
        try:
            elmo_model(elmo)
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"--elmo {elmo}: {error}") from error
        try:
            changes = parse_overrides(overrides)
        except RuntimeError as error:
            raise ConfigurationError(f"--overrides {overrides}: {_first_line(error)}") from error
        if not isinstance(changes, dict):
            raise ConfigurationError(f"--overrides {overrides}: it must be a JSON object, {{...}}")
        if not changes.keys().isdisjoint(_SEEDS):
            raise ConfigurationError(f"--overrides {overrides}: the seeds are those of --seeds")
        self._tasks = tasks
        self._elmo = elmo
        self._folder = folder
        self._overrides = overrides
        self._vectors = vectors
        self._word_dim = None if vectors is None else check_word_vectors(vectors)
        self.models = [model for model in MODELS if vectors is not None or model != "vectors"]

    def _path(self, task: str, model: str) -> Path:
        return self._folder / f"{kind_of(task)}{'_elmo' if model == 'elmo' else ''}.jsonnet"

    def params(self, task: str, model: str, seed: int) -> Params:
        """Return the configuration for `allennlp train` of a model, one of `models`."""
        path = self._path(task, model)
        data = {split: str(place) for split, place in self._tasks[task].items()}
        variables = {f"{split.upper()}_DATA_PATH": place for split, place in data.items()}
        # Always set: variables of the environment with these names would change the baseline.
        variables["WORD_DIM"] = "" if self._word_dim is None else str(self._word_dim)
        has_vectors = self._vectors is not None and model != "baseline"
        variables["VECTORS"] = str(self._vectors) if has_vectors else ""
        try:
            params = Params.from_file(
                str(path), self._overrides, ext_vars={**variables, "ELMO": self._elmo}
            )
        except FileNotFoundError as error:
            raise FileNotFoundError(f"--configs {self._folder}: there is no {path}") from error
        except RuntimeError as error:  # jsonnet's message, followed by a stack
            raise ConfigurationError(f"{path}: {_first_line(error)}") from error
        except ValueError as error:
            raise ConfigurationError(
                f"{path} with --overrides, which must fit both models: {error}"
            ) from error
        for split, place in data.items():
            key = f"{split}_data_path"
            if params.get(key) != place:
                raise ConfigurationError(
                    f"{path} with --overrides has the {key} {params.get(key)!r}, but the data must "
                    f"be those of --data, {place}"
                )
        for key in _SEEDS:
            params[key] = seed
        return params

    def settings(self, tasks: Iterable[str]) -> Dict[str, Any]:
        """
        Return digests of what the results of tasks depend on: `elmo`, of the content of the ELMo
        (or the name of a published one), `vectors`, of the content of the word vectors if there are
        any, and by task `tasks`, each with `data` (by split) and its models (the configurations).
        """
        digests = _Digests()
        found: Dict[str, Any] = {}
        for task in tasks:
            data = {split: digests.of_path(path) for split, path in self._tasks[task].items()}
            found[task] = {"data": data}
            for model in self.models:
                params = digests.without_paths(self.params(task, model, 0).as_dict(quiet=True))
                text = json.dumps(params, sort_keys=True)
                found[task][model] = hashlib.sha256(text.encode()).hexdigest()[:16]
        content = {"elmo": digests.of_elmo(self._elmo)}
        if self._vectors is not None:
            content["vectors"] = digests.of_path(self._vectors)
        return {**content, "tasks": found}

    def check(self, tasks: Iterable[str]) -> None:
        """Read the weights of each ELMo, and the data as AllenNLP does, to find errors early."""
        loaded: Set[Tuple[str, str]] = set()
        for task in tasks:
            params = self.params(task, "baseline", 0)
            for model in self.models:
                self._check_trainer(task, model)
                if model != "baseline":
                    self._check_vectors(task, model)
            elmos = _elmo_files(self.params(task, "elmo", 0))
            if not elmos:
                raise ConfigurationError(
                    f"--configs {self._folder}: {kind_of(task)}_elmo.jsonnet has no ELMo in it"
                )
            for files in (elmos | _elmo_files(params)) - loaded:
                ElmoBiLm(*files)
                loaded.add(files)
            reader = params.pop("dataset_reader")
            other_reader = params.pop("validation_dataset_reader", reader.duplicate())
            for split, path in self._tasks[task].items():
                _check_readable(reader if split == "train" else other_reader, path)

    def _check_vectors(self, task: str, model: str) -> None:
        embedders = str(self.params(task, model, 0).as_dict(quiet=True).get("model"))
        if self._vectors is not None and repr(str(self._vectors)) not in embedders:
            raise ConfigurationError(
                f"{self._path(task, model)} doesn't use the variable VECTORS of --vectors; see "
                f"{self._folder / 'small.libsonnet'}"
            )

    def _check_trainer(self, task: str, model: str) -> None:
        """Refuse unknown keys, which AllenNLP only finds after it has read the data."""
        settings = self.params(task, model, 0).as_dict(quiet=True).get("trainer", {})
        place = f"{self._path(task, model)} with --overrides, trainer"
        if not isinstance(settings, dict):
            raise ConfigurationError(f"{place}: it must be an object, {{...}}")
        name = settings.get("type", Trainer.default_implementation)
        trainer, constructor = Trainer.resolve_class_name(name)
        known = _known_keys(trainer, constructor)
        if known is None:
            return
        unknown = sorted(settings.keys() - known - {"type"})
        if unknown:
            hint = did_you_mean(unknown[0], known) or "; remove it"
            raise ConfigurationError(f"{place}: there is no key {unknown[0]!r}{hint}")


def _known_keys(trainer: Any, constructor: Optional[str]) -> Optional[Set[str]]:
    """Return the keys that a trainer may have in a config; `None` if it accepts any."""
    names: Set[str] = set()
    functions = [getattr(trainer, constructor)] if constructor else []
    for function in [*functions, *(vars(each).get("__init__") for each in trainer.__mro__)]:
        if function is not None:
            parameters = inspect.signature(function).parameters
            names.update(parameters)
            # With a `**kwargs`, it passes unknown ones to the next class.
            if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
                return names
    return None


def _check_readable(params: Params, path: Path) -> None:
    reader = DatasetReader.from_params(params.duplicate())
    name = f"{path}: AllenNLP's reader {params['type']!r}"
    number = 0
    try:
        for _ in reader.read(str(path)):
            number += 1
    except Exception as error:  # Readers raise errors of any kind.
        raise ConfigurationError(
            f"{name} stops after {number} instances: {type(error).__name__}: {error}"
        ) from error
    if not number:
        raise ConfigurationError(f"{name} finds nothing in it to train or test with")


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[0]


def _elmo_files(params: Params) -> Set[Tuple[str, str]]:
    """Return the files of each ELMo in a configuration, as they are named there."""
    names = [file_names(section) for _, section in elmo_sections(params.as_dict(quiet=True))]
    return {(each["options_file"], each["weight_file"]) for each in names}


class _Digests:
    """Digests of the contents of files, each read once."""

    def __init__(self) -> None:
        self._found: Dict[Tuple[Path, ...], str] = {}

    def of_path(self, *paths: Path) -> str:
        """Return that of files, and of all files in folders."""
        if paths not in self._found:
            digest = hashlib.sha256()
            for file in _files_in(paths):
                with open(file, "rb") as content:  # Word vectors may not fit into the memory.
                    for block in iter(lambda: content.read(_BLOCK_BYTES), b""):
                        digest.update(block)
            self._found[paths] = digest.hexdigest()[:16]
        return self._found[paths]

    def of_elmo(self, name: str) -> str:
        """Return that of a model, or its name if it is downloaded."""
        files = local_files(name)
        return self.of_path(*map(Path, files)) if files else name

    def without_paths(self, value: Any) -> Any:
        """Replace the names of files and models by digests; remove those of data."""
        if isinstance(value, list):
            return [self.without_paths(item) for item in value]
        if isinstance(value, str):
            # Any word may be the name of a file here, too.
            is_path = os.path.dirname(value) or Path(value).suffix
            return self._of_file(value) if is_path else value
        if not isinstance(value, dict):
            return value
        found = {}
        for key, item in value.items():
            if key in ("options_file", "weight_file") and isinstance(item, str):
                found[key] = self._of_elmo_file(item)
            elif key.endswith("_file") and isinstance(item, str):
                found[key] = self._of_file(item)
            elif not key.endswith("_data_path"):
                found[key] = self.without_paths(item)
        return found

    def _of_file(self, name: str) -> str:
        path = os.path.expanduser(name)
        return self.of_path(Path(path)) if os.path.isfile(path) else name

    def _of_elmo_file(self, name: str) -> str:
        path = Path(name).expanduser()
        if path.is_file():
            return self.of_path(path)
        return name if is_short_name(name) else self.of_elmo(name)


def _files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files in the order of AllenNLP's reader of CoNLL-2012, that of the file system."""
    for path in paths:
        if path.is_file():
            yield path
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names)
