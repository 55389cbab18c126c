"""The archive or the folder of a `bidirectional_lm`, whose config is read as data alone."""

import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.options import BiLmOptions, set_options
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.archive import model_folder
from allennlp_elmo_plugin.pretrained.checkpoints.layout import Layout, ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import (
    Weights,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import CONFIG_FILE, OPTIONS_FILE, TRAINING_FILE
from allennlp_elmo_plugin.text.vocabulary import VOCABULARY_FOLDER, read_vocabulary_folder

PUBLISHED_ADDRESS = "https://allennlp.s3.amazonaws.com/models/elmo/"
"""The address of AllenNLP's models. Of the addresses in a model's files, only these are opened."""

_MAX_ORIGINS = 16  # training runs that each started from the one before
_SECTIONS = ("model", "dataset_reader", "data_loader", "trainer")


class TrainingRun(Layout):
    """config.json, a state dict of torch and the folder of a vocabulary."""

    ending = ".th"

    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        if not names.is_training_run(folder):
            return None
        weights = names.first_file(folder, names.RUN_WEIGHT_FILES)
        if weights is None:
            raise ValueError(
                f"{folder}: needs {CONFIG_FILE} and {names.ARCHIVED_WEIGHT_FILE} (an archive) or "
                f"{names.RUN_WEIGHT_FILE} (the folder of a training run, after the first epoch)"
            )
        return folder / CONFIG_FILE, weights

    @contextmanager
    def open(self, files: ModelFiles) -> Iterator[tuple[BiLmOptions, Weights]]:
        tensors = read_tensors(files.weights)
        n_words = tensors.get("softmax.bias", torch.empty(0)).numel()
        options = archived_options(files.options.parent, n_words)
        yield options, weights_of_state_dict(str(files.weights), tensors, options)

    def files(self, source: str, options: Path, weights: Path) -> ModelFiles:
        return ModelFiles(self, source, options, weights, None, options.parent / VOCABULARY_FOLDER)

    def read_words(self, vocabulary: PathLike) -> list[str]:
        return read_vocabulary_folder(vocabulary, str(vocabulary))

    def read_training(self, files: ModelFiles) -> tuple[dict[str, Any], dict[str, Any]]:
        config, metrics = read_json_object(files.options), {}
        with suppress(FileNotFoundError, ValueError):  # NaN, of a training that diverged
            metrics = read_json_object(files.options.parent / names.METRICS_FILE)
        return training_sections(config), metrics


def training_sections(config: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of a config that say how a model was trained."""
    return {key: config[key] for key in _SECTIONS if key in config}


def archived_options(folder: Path, n_words: int, depth: int = 0) -> BiLmOptions:
    """Return the options of the model of `n_words` in the folder of a run or unpacked archive."""
    source = str(folder / CONFIG_FILE)
    try:
        model = read_json_object(source).get("model")
    except ValueError as error:  # jsonnet, as in older archives of task models
        raise ValueError(f"{error}; only the archive of a bidirectional_lm can be read") from None
    model = model if isinstance(model, dict) else {}
    kind, values = model.get("type"), model.get("options")
    if kind == "from_archive":
        # A run that started from another archive has the options of that one.
        origin = model.get("archive_file")
        names.refuse_other_computers(str(origin), f'{source}: "model.archive_file"')
        if not isinstance(origin, str) or not os.path.exists(origin) or depth == _MAX_ORIGINS:
            raise ValueError(
                f'{source}: "model.archive_file" must be the archive that the training started '
                f"from, but {reprlib.repr(origin)} is not there; put it there"
            )
        with model_folder(origin, origin) as origin_folder:
            return archived_options(origin_folder, n_words, depth + 1)
    if kind != "bidirectional_lm":
        text = f"the model is of the type {reprlib.repr(kind)}, not a bidirectional_lm"
        if "language" in text:
            text += ", as AllenNLP's transformer ELMo: use its bidirectional_lm_token_embedder"
        raise ValueError(f"{source}: {text}")
    if values is None:
        path, name = folder / OPTIONS_FILE, model.get("options_file")
        names.refuse_other_computers(str(name), f'{source}: "model.options_file"')
        if isinstance(name, str) and name.startswith(PUBLISHED_ADDRESS):
            path = Path(cached_path(name))
        elif isinstance(name, str) and os.path.isfile(name):
            path = Path(name)
        if not path.exists():
            raise ValueError(
                f'{source}: "model.options_file" is {reprlib.repr(name)}, which is not a file '
                f"here; put it there, or {OPTIONS_FILE} into the archive (by the setting "
                f'"include_in_archive": ["{OPTIONS_FILE}"] of the training)'
            )
        source, values = str(path), read_json_object(path)
    elif isinstance(values, dict):
        source = f"{source}, model.options"
    else:
        raise ValueError(f'{source}: "model.options" must be a JSON object {{...}}')
    set_options(values, model, n_words, f"{folder / CONFIG_FILE}, model")
    if n_words:
        values["n_tokens_vocab"] = n_words
    return BiLmOptions.from_dict(values, source)


def evaluation_settings(folder: Path, options: BiLmOptions) -> dict[str, Any]:
    """Return the settings of `TextBatches` with which the model in a folder was validated."""
    values: Any = {}
    if (folder / CONFIG_FILE).is_file():
        config = read_json_object(folder / CONFIG_FILE)
        values = config.get("validation_dataset_reader") or config.get("dataset_reader")
    elif (folder / TRAINING_FILE).is_file():
        run = read_json_object(folder / TRAINING_FILE)
        values = {**run["text"], **run["validation"]}
    values = values if isinstance(values, dict) else {}
    n_rows, n_steps = map(options.training.get, ("batch_size", "unroll_steps"))
    # By default those of bilm-tf's script
    defaults = {"batch_size": n_rows or 128, "num_steps": n_steps or 20}
    defaults.update(contiguous=False, encoding_errors="strict")
    return {name: values.get(name, default) for name, default in defaults.items()}
