"""The configurations of a benchmark's runs, and digests of what their results depend on."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import parse_overrides
from allennlp.data import DatasetReader

from allennlp_elmo_plugin.benchmark.task import MODELS, kind_of
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_files import local_files
from allennlp_elmo_plugin.patches.jsonnet import elmo_model


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
        try:
            if not isinstance(parse_overrides(overrides), dict):
                raise ValueError("it must be a JSON object, {...}")
        except (RuntimeError, ValueError) as error:
            raise ConfigurationError(f"--overrides {overrides}: {_first_line(error)}") from error
        try:
            self._elmo_files = elmo_model(elmo)
        except (ConfigurationError, FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"--elmo {elmo}: {error}") from error
        self._tasks = tasks
        self._elmo = elmo
        self._folder = folder
        self._overrides = overrides
        self._vectors = vectors
        self._word_dim = "" if vectors is None else str(_word_dim(vectors))
        self.models = [model for model in MODELS if vectors is not None or model != "vectors"]
        files = [Path(file) for file in local_files(elmo)]
        self._digests = {
            "elmo": _digest(*files) if files else elmo,
            "vectors": "" if vectors is None else _digest(vectors),
            **{task: _digest(*splits.values()) for task, splits in tasks.items()},
        }

    def params(self, task: str, model: str, seed: int) -> Params:
        """Return the configuration for `allennlp train` of a model, one of `models`."""
        path = self._folder / f"{kind_of(task)}{'_elmo' if model == 'elmo' else ''}.jsonnet"
        has_vectors = self._vectors is not None and model != "baseline"
        # Always set: variables of the environment with these names would change the baseline.
        variables = {
            "ELMO": self._elmo,
            "WORD_DIM": self._word_dim,
            "VECTORS": str(self._vectors) if has_vectors else "",
            **{f"{split.upper()}_DATA_PATH": str(at) for split, at in self._tasks[task].items()},
        }
        try:
            params = Params.from_file(str(path), self._overrides, ext_vars=variables)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"--configs {self._folder}: there is no {path}") from error
        except (RuntimeError, ValueError) as error:  # jsonnet's message is followed by a stack.
            raise ConfigurationError(f"{path} with --overrides: {_first_line(error)}") from error
        for key in ("random_seed", "numpy_seed", "pytorch_seed"):
            params[key] = seed
        return params

    def digests(self, task: str, model: str) -> Dict[str, str]:
        """Return digests of what the result of a run depends on, apart from its seed."""
        params = self.params(task, model, 0).as_dict(quiet=True)
        text = json.dumps(params, sort_keys=True, ensure_ascii=False)
        # The content of these counts, not their place.
        elmo = (self._elmo_files["options_file"], self._elmo_files["weight_file"])
        for place in (*elmo, self._vectors, *self._tasks[task].values()):
            text = text.replace(f'"{place}"', "null")
        found = {"config": _hash(text.encode()), "data": self._digests[task]}
        if model == "elmo":
            found["elmo"] = self._digests["elmo"]
        if model != "baseline":
            found["vectors"] = self._digests["vectors"]
        return found

    def check(self, tasks: List[str]) -> None:
        """Read the weights of the ELMo, and the data as AllenNLP does, to find errors early."""
        if tasks:
            ElmoBiLm(self._elmo_files["options_file"], self._elmo_files["weight_file"])
        for task in tasks:
            for model in self.models:
                params = self.params(task, model, 0)
            train = params.pop("dataset_reader")
            validation = params.pop("validation_dataset_reader", train.duplicate())
            for split, path in self._tasks[task].items():
                _check_readable(train if split == "train" else validation, path)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _check_readable(params: Params, path: Path) -> None:
    name = f"{path}: AllenNLP's reader {params['type']!r}"
    number = 0
    try:
        for _ in DatasetReader.from_params(params.duplicate()).read(str(path)):
            number += 1
    except Exception as error:  # Readers raise errors of any kind.
        raise ConfigurationError(
            f"{name} stops after {number} instances: {type(error).__name__}: {error}"
        ) from error
    if not number:
        raise ConfigurationError(f"{name} finds nothing in it to train or test with")


def _word_dim(vectors: Path) -> int:
    """Return the size of word vectors in a text file, as AllenNLP reads it."""
    file: Any = gzip.open(vectors) if vectors.suffix == ".gz" else vectors.open("rb")
    with file:
        sizes = [len(file.readline().split()) - 1 for _ in range(2)]
    dim = sizes[1] if sizes[0] == 1 else sizes[0]  # The first line of word2vec has two sizes.
    if dim < 2:
        raise ConfigurationError(
            f"--vectors {vectors}: each line must be a word and its numbers, as in GloVe's files"
        )
    return dim


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _digest(*paths: Path) -> str:
    """Return a digest of the contents of files, and of all files in folders."""
    digests = b""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as content:
                    digests += hashlib.file_digest(content, "sha256").digest()
    return _hash(digests)
