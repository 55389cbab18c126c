"""
Read the archive of a `bidirectional_lm`, or the folder it was trained in, as data: nothing that
config.json or the weights name is constructed.
"""

import os
import reprlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Tuple

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    SOFTMAX_BIAS,
    PublishedTensors,
    SavedVariables,
    TensorVariables,
    find_variables,
    read_options,
)
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.model_archive import model_folder
from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVED_WEIGHT_FILE,
    CONFIG_FILE,
    OPTIONS_FILE,
    RUN_WEIGHT_FILE,
    find_options_file,
    is_training_run,
)
from allennlp_elmo_plugin.modules.downloads import cached_path

PUBLISHED_ADDRESS = "https://allennlp.s3.amazonaws.com/models/elmo/"
"""Where AllenNLP's models are; what alone is downloaded if a stranger's file names it."""

# The weights in an archive, and in the folder of a training run.
_WEIGHTS = (ARCHIVED_WEIGHT_FILE, RUN_WEIGHT_FILE)
_MODEL_TYPE = "bidirectional_lm"
# How many training runs may each have started from the one before.
_MAX_ORIGINS = 16
# Negative samples of `"num_samples": "auto"`, those of bilm-tf. Drawing them from a vocabulary that
# is hardly larger would take longer than the full softmax.
_MANY_SAMPLES = 8192


class ArchivedModel(NamedTuple):
    """
    The options of an archived model and its parameters, under their names in the state dict.
    """

    options: BiLmOptions
    variables: TensorVariables


def open_training_run(folder: Path, source: str) -> ArchivedModel:
    """
    Open the model in the folder of a training run, or in one with the files of an archive. `source`
    is its name in errors.

    # Raises

    `ValueError` that names the file and what is wrong with it.
    """
    weights = [name for name in _WEIGHTS if (folder / name).exists()]
    if not (folder / CONFIG_FILE).exists() or not weights:
        raise ValueError(
            f"The folder {source} is not that of a training run: it needs {CONFIG_FILE} and "
            f"{RUN_WEIGHT_FILE}, which are there after the first epoch"
            if os.path.isdir(source)
            else f"{source} is not the archive of a model: it needs {CONFIG_FILE} and "
            f"{ARCHIVED_WEIGHT_FILE}"
        )
    variables = TensorVariables(folder / weights[0], f"{source}/{weights[0]}")
    n_words = next(iter(variables.published_shapes.get(SOFTMAX_BIAS, ())), 0)
    values, options_source = _archived_options(folder, source, n_words)
    return ArchivedModel(read_options(values, options_source, variables), variables)


@contextmanager
def open_published(folder: Path, source: str) -> Iterator[Tuple[BiLmOptions, SavedVariables]]:
    """
    Open the language model of a folder of any kind, with its variables under the names of the
    published layout. `source` is the name of the folder in errors.

    # Parameters

    folder : `Path`
        That of a training run or with the files of an archive, one with options and HDF5 weights,
        or one with options and a checkpoint of TensorFlow, which may also be given by the prefix
        of its files.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it.
    """
    if is_training_run(folder):
        options, tensors = open_training_run(folder, source)
        yield options, PublishedTensors(tensors, options)
        return
    with find_variables(folder) as variables:
        yield read_folder_options(folder, variables), variables


def read_folder_options(folder: Path, variables: SavedVariables) -> BiLmOptions:
    """
    Read the options of a folder, or of the checkpoint with this prefix, completed by its variables.
    """
    if not folder.is_dir():
        folder = folder.parent
    path = find_options_file(folder)
    if path is None:
        raise FileNotFoundError(
            f"{folder / OPTIONS_FILE}: there is no such file; bilm-tf writes it beside its "
            "checkpoints, and it is published with every weights.hdf5"
        )
    return read_options(read_json_object(path), str(path), variables)


def _archived_options(
    folder: Path, path: str, n_words: int, depth: int = 0
) -> Tuple[Dict[str, Any], str]:
    """
    Return the keys of options.json of an archived model, and their source for errors. The model has
    a vocabulary of `n_words`.
    """
    source = f"{path}/{CONFIG_FILE}"
    try:
        model = read_json_object(folder / CONFIG_FILE, source).get("model")
    except ValueError as error:  # the archive of a task model with ELMo: jsonnet
        raise ValueError(f"{error}; only the archive of a bidirectional_lm can be read") from None
    if not isinstance(model, dict):
        raise ValueError(f'{source}: "model" must be a JSON object {{...}}')
    if model.get("type") == "from_archive":
        # A run that started from another archive has the options of that one.
        origin = model.get("archive_file")
        if not isinstance(origin, str) or not os.path.exists(origin) or depth == _MAX_ORIGINS:
            raise ValueError(
                f'{source}: "model.archive_file" must be the archive that the training started '
                f"from, but {reprlib.repr(origin)} is not there; put it there, or train with "
                '"pretrained_file", which does not need it afterwards'
            )
        with model_folder(origin, origin) as origin_folder:
            return _archived_options(origin_folder, origin, n_words, depth + 1)
    if model.get("type") != _MODEL_TYPE:
        raise ValueError(
            f"{source}: the model is of the type {reprlib.repr(model.get('type'))}; only a "
            f"{_MODEL_TYPE} can be read"
        )
    values, options_source = _written_options(model, source, folder, path)
    set_options(values, model, n_words, f"{source}, model")
    return values, options_source


def _written_options(
    model: Dict[str, Any], source: str, folder: Path, path: str
) -> Tuple[Dict[str, Any], str]:
    """
    Return the options in the model's section, or in the file that it names or the archive has.
    """
    options, options_file = model.get("options"), model.get("options_file")
    if options is not None and (options_file is not None or not isinstance(options, dict)):
        raise ValueError(
            f'{source}: "model" must have either "options", a JSON object {{...}}, or '
            '"options_file"'
        )
    if options is not None:
        return dict(options), f"{source}, model.options"
    if options_file is not None:
        if isinstance(options_file, str) and options_file.startswith(PUBLISHED_ADDRESS):
            return read_json_object(cached_path(options_file), options_file), options_file
        if isinstance(options_file, str) and os.path.isfile(options_file):
            return read_json_object(options_file), options_file
    if (folder / OPTIONS_FILE).exists():
        return read_json_object(folder / OPTIONS_FILE, f"{path}/{OPTIONS_FILE}"), path
    if options_file is not None:
        raise ValueError(
            f'{source}: "model.options_file" is {reprlib.repr(options_file)}, which is not a file '
            "here (of addresses, only those of the published models are followed); put it there, "
            f"or give the archive an {OPTIONS_FILE}"
        )
    raise ValueError(
        f"{path}: has no options. The archive of a model that was trained from a pretrained_file "
        f'has them where the configuration says "include_in_archive": ["{OPTIONS_FILE}"]'
    )


def set_options(
    values: Dict[str, Any],
    arguments: Mapping[str, Any],
    n_words: int,
    source: str = "bidirectional_lm",
) -> None:
    """
    Change options, the keys of options.json, by the arguments of a `bidirectional_lm`:
    `num_samples`, `dropout`, `share_embedding_softmax` and `bidirectional`, those that there are.
    The vocabulary has `n_words`.

    # Raises

    `ValueError` that names `source`, if `num_samples` is neither a number nor "auto".
    """
    for key in ("dropout", "share_embedding_softmax", "bidirectional"):
        if arguments.get(key) is not None:
            values[key] = arguments[key]
    num_samples = arguments.get("num_samples")
    if num_samples == "auto":
        num_samples = _MANY_SAMPLES if n_words >= 2 * _MANY_SAMPLES else 0
    if num_samples is not None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool):
            raise ValueError(
                f'{source}: "num_samples" must be a whole number or "auto", but is '
                f"{reprlib.repr(num_samples)}"
            )
        values["sample_softmax"] = num_samples > 0
        if num_samples > 0:
            values["n_negative_samples_batch"] = num_samples
