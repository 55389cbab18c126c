"""The configurations of a benchmark's runs, and digests of what their results depend on."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import parse_overrides
from allennlp.data import DatasetReader
from allennlp.training import GradientDescentTrainer

from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.plugin.benchmark.task import MODELS, kind_of
from allennlp_elmo_plugin.pretrained.find_model import elmo_model
from allennlp_elmo_plugin.text.corpus import digests
from allennlp_elmo_plugin.text.lines import open_lines


@dataclass
class Configuration:
    """The configurations of all models. The fields are the command's arguments (see `params`)."""

    tasks: dict[str, dict[str, Path]]
    elmo: str
    folder: Path
    overrides: str = "{}"
    vectors: Path | None = None

    def __post_init__(self) -> None:
        elmo = elmo_model(self.elmo)
        self._elmo_files = [elmo["options_file"], elmo["weight_file"]]
        self.models = [model for model in MODELS if self.vectors or model != "vectors"]
        self._word_dim = ""
        if self.vectors:
            with open_lines(self.vectors) as lines:
                lines.read_line()  # In word2vec's format, it has two sizes.
                cells = lines.read_line().split()
            self._word_dim = str(len(cells) - 1)
            if len(cells) < 3 or not re.fullmatch(rb"[-+.e\d]+", cells[-1]):
                raise ConfigurationError(
                    f"--vectors {self.vectors}, line 2: is not a word and its numbers, as in the "
                    "text formats of GloVe and word2vec"
                )

    def params(self, task: str, model: str, seed: int) -> Params:
        """Return the configuration for `allennlp train`."""
        path = self.folder / f"{kind_of(task)}{'_elmo' if model == 'elmo' else ''}.jsonnet"
        if not path.exists():
            raise FileNotFoundError(f"--configs {self.folder}: there is no {path}")
        # All are set, so that the environment's variables of these names change no run.
        variables = {
            "ELMO": self.elmo,
            "WORD_DIM": self._word_dim,
            "VECTORS": str(self.vectors) if self.vectors and model != "baseline" else "",
            **{f"{split.upper()}_DATA_PATH": str(p) for split, p in self.tasks[task].items()},
        }
        params = Params.from_file(str(path), self.overrides, ext_vars=variables)
        seeds = dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), seed)
        if given := seeds.keys() & parse_overrides(self.overrides).keys():
            raise ConfigurationError(f"--overrides: {min(given)} is set by --seeds; leave it out")
        trainer = params.get("trainer", {})
        known = {"type", *signature(GradientDescentTrainer.from_partial_objects).parameters}
        # AllenNLP ignores other keys.
        if trainer.get("type") in (None, "gradient_descent") and (unknown := {*trainer} - known):
            raise ConfigurationError(f"{path}, --overrides: unknown in trainer: {min(unknown)}")
        if "test_data_path" not in params:
            fix = """test_data_path: std.extVar('TEST_DATA_PATH')"""
            raise ConfigurationError(f"{path}: has no test data, which are scored; add {fix}")
        params.update(seeds)
        return params

    def digests(self, task: str, model: str) -> dict[str, str]:
        """Return digests of what determines the result of a run, apart from its seed."""
        config = json.dumps(self.params(task, model, 0).as_dict(quiet=True), sort_keys=True)
        data = list(self.tasks[task].values())
        for path in (*self._elmo_files, self.vectors, *data):
            config = config.replace(json.dumps(str(path)), "null")  # The content counts.
        result = {"config": _hash(config), "data": _digest(data)}
        if model == "elmo":
            result["elmo"] = self.elmo_digest()
        if model != "baseline":
            result["vectors"] = _digest([self.vectors] if self.vectors else [])
        return result

    def elmo_digest(self) -> str:
        # A checkpoint's index has the checksums of its data.
        names = [name for file in self._elmo_files for name in (file, f"{file}.index")]
        files = [Path(name) for name in names if os.path.exists(name)]
        return _digest(files) if files else self.elmo

    def check(self, tasks: list[str]) -> None:
        """Read the ELMo's weights and, as AllenNLP does, the data, to find errors early."""
        ElmoBiLm(*self._elmo_files)
        for task in tasks:
            for model in self.models:
                params = self.params(task, model, 0)
            train = params.pop("dataset_reader")
            validation = params.pop("validation_dataset_reader", train.duplicate())
            for split, path in self.tasks[task].items():
                reader = (train if split == "train" else validation).duplicate()
                if reader["type"] == "sst_tokens":
                    _check_trees(path)
                name, number = f"{path}: AllenNLP's reader {reader['type']!r}", 0
                try:
                    for _ in DatasetReader.from_params(reader).read(str(path)):
                        number += 1
                except Exception as error:  # Readers raise errors of any kind.
                    raise ConfigurationError(
                        f"{name} fails after {number} instances: {type(error).__name__}: {error}"
                    ) from error
                if not number:
                    raise ConfigurationError(f"{name} finds no instances in it")


def _check_trees(path: Path) -> None:
    """AllenNLP's reader takes whatever follows a bracket for a label, and so loses words."""
    with open_lines(path) as lines:
        for line in lines:
            if wrong := re.search(r"\((?![0-4]\s)\s*[^\s()]*", line.sentence):
                raise ConfigurationError(
                    f"{path}, line {line.number + 1}: {wrong[0]!r} has no label from 0 to 4; write "
                    "brackets of the text as -LRB- and -RRB-"
                )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of the contents of files, and of all files in folders."""
    files = [file for path in paths for file in (path, *sorted(path.rglob("*")))]
    return _hash("".join(digests(filter(Path.is_file, files)).values()))
