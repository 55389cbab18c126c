"""The files of a pretrained model: find or download them by any of their names, and open them."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import MAX_BYTES, read_json_object, shown
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained.archive import is_archive, model_folder
from allennlp_elmo_plugin.pretrained.checkpoints.many_langs import open_many_langs
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import (
    Weights,
    open_weights,
    options_of_shapes,
    read_options,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.pretrained.checkpoints.tensorflow_checkpoint import find_checkpoint
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import (
    ARCHIVED_WEIGHT_FILE,
    CONFIG_FILE,
    ENCODER_FILE,
    HUB_WEIGHTS,
    OPTIONS_FILE,
    RUN_WEIGHT_FILE,
    SOFTMAX_FILE,
    WEIGHT_FILE,
    WHOLE_MODELS,
    find_options_file,
    find_vocabulary_file,
    find_weight_file,
    has_checkpoint,
    is_hub_module,
    is_many_langs,
    is_training_run,
    name_beside,
    options_of,
    weights_of,
)
from allennlp_elmo_plugin.pretrained.training_run import PUBLISHED_ADDRESS, archived_options

_BUNDLED = "tiny"
BUNDLED_MODEL = Path(__file__).resolve().with_name(_BUNDLED)

_PUBLISHED_MODELS = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original-5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}

SHORT_NAMES = (_BUNDLED, *_PUBLISHED_MODELS)


def _published(name: str, file_name: str) -> str:
    model = _PUBLISHED_MODELS[name]
    return f"{PUBLISHED_ADDRESS}{model}/elmo_{model}_{file_name}"


DEFAULT_OPTIONS_FILE = _published("original", OPTIONS_FILE)
DEFAULT_WEIGHT_FILE = _published("original", WEIGHT_FILE)


class ModelFiles(NamedTuple):
    """
    The files of a language model on this machine, and its name in messages. `options` is
    options.json, the config.json of a training run or of ELMoForManyLangs, or the same as
    `weights`, whose shapes tell them; `weights` an HDF5 file, the prefix of a checkpoint of
    TensorFlow, or a state dict. `softmax` is `None` where there is none, or it is in `weights`.
    """

    source: str
    options: Path
    weights: Path
    softmax: Path | None = None
    vocabulary: Path | None = None

    @property
    def is_run(self) -> bool:
        return self.options.name == CONFIG_FILE and not self.is_many_langs  # or its archive

    @property
    def is_many_langs(self) -> bool:
        return self.weights.name == ENCODER_FILE

    @property
    def is_pair(self) -> bool:
        """Whether these are options.json and an HDF5 file, as AllenNLP reads them."""
        return not self.is_run and self.weights.suffix == ".hdf5"

    @contextmanager
    def open(self) -> Iterator[tuple[BiLmOptions, Weights]]:
        """
        Open the weights, and read the options, completed by them. Errors in the block name what
        the model was trained on, if its files do.
        """
        folder = self.options.parent
        try:
            if self.is_run:
                tensors = read_tensors(self.weights)
                n_words = tensors.get("softmax.bias", torch.empty(0)).numel()
                options = archived_options(folder, n_words)
                yield options, weights_of_state_dict(str(self.weights), tensors, options)
            elif self.is_many_langs:
                yield open_many_langs(folder)
            else:
                with open_weights(self.weights, self.softmax) as weights:
                    if self.options == self.weights:
                        values = options_of_shapes(weights)
                    else:
                        values = read_json_object(self.options)
                    yield read_options(values, str(self.options), weights), weights
        except ValueError as error:
            raise ValueError(f"{error}{_trained_on(folder)}") from error


def _trained_on(folder: Path) -> str:
    """Return what ELMoForManyLangs' config.json and NLPL's meta.json tell about the text."""
    paths = [path for path in (folder / CONFIG_FILE, folder / "meta.json") if path.is_file()]
    text = "".join(path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace") for path in paths)
    found = re.findall(r'"(?:train_path|language)": *"([^"\\]+)"', text)
    return f" (trained on {shown(', '.join(dict.fromkeys(found)), 200)})" if found else ""


@contextmanager
def find_model(
    options_file: str | None, weight_file: str | None = None, for_training: bool = False
) -> Iterator[ModelFiles]:
    """
    Yield the files of a language model; what an address names is downloaded to a cache, and an
    archive is unpacked to a temporary folder until the end of the block.

    # Parameters

    options_file, weight_file : `str`
        The path or address of each file. If one of them is left out (`None`, or the default of
        AllenNLP's token embedder), it is the file beside the other one. Or `options_file` is a
        whole model, and `weight_file` is left out or the same. A whole model is

        - a folder with `options.json` and `weights.hdf5`, or files of other publishers' names: see
          `weights_of`;
        - a zip archive of these files, as in the NLPL vector repository, or a `.tar.gz`;
        - the `model.tar.gz` of a `bidirectional_lm`, or the folder it was trained in;
        - the folder or archive of a model of ELMoForManyLangs or of a module of TensorFlow Hub;
        - a folder with `options.json` and a checkpoint of bilm-tf, or the path of one of several
          checkpoints, without `.index`;
        - `hf://USER/MODEL`, on the Hugging Face Hub;
        - a short name: `tiny`, the model in this package, or of the published models `small`,
          `medium`, `original` or `original-5.5b`. A folder of that name comes first.
    for_training : `bool`, optional (default = `False`)
        Of a folder with both, take a checkpoint, which has more, rather than `weights.hdf5`.

    # Raises

    `FileNotFoundError` or `ValueError` that names the path, address or name, and the fix.
    """
    options, weights = (
        os.path.expanduser(name).rstrip("/") or "/" if name else None
        for name in (options_file, weight_file)
    )
    default = None
    if options == DEFAULT_OPTIONS_FILE and weights not in (None, DEFAULT_WEIGHT_FILE):
        options, default = None, options
    elif weights == DEFAULT_WEIGHT_FILE and options not in (None, DEFAULT_OPTIONS_FILE):
        weights = None
    name = options or weights
    if name is None:
        raise ValueError('no model was named: give a path or a short name such as "tiny"')
    source = options_file or name
    if options and weights and options != weights:
        if options.endswith(".hdf5"):
            raise ValueError(f"{options}: these are weights; options_file comes before weight_file")
        yield _with_others(
            source, find_file(options, OPTIONS_FILE), find_file(weights, WEIGHT_FILE)
        )
    elif is_short_name(name):
        yield _with_others(source, find_file(name, OPTIONS_FILE), find_file(name, WEIGHT_FILE))
    elif name.endswith(".index") or (not os.path.exists(name) and os.path.exists(f"{name}.index")):
        yield _with_options(source, Path(name.removesuffix(".index")))
    else:
        is_weights = options is None or name.endswith(".hdf5")
        path = find_file(name, WEIGHT_FILE if is_weights else OPTIONS_FILE)
        if os.path.isdir(path) or is_archive(path):
            with model_folder(path, source) as folder:
                yield _files_in(folder, source, for_training)
        elif is_weights:
            yield _with_others(source, _beside(name, OPTIONS_FILE, default), path)
        else:
            yield _with_others(source, path, _beside(name, WEIGHT_FILE))


def _beside(name: str, file_name: str, default: str | None = None) -> str:
    """Return the path of the options that belong to weights, or the reverse."""
    found = default or name_beside(name)  # as in AllenNLP, whatever lies beside the weights
    if "://" not in name:
        beside = (options_of if file_name == OPTIONS_FILE else weights_of)(Path(name))
        found = default if beside is None else str(beside)
    if found is None:
        raise ValueError(
            f"{name}: there is no {file_name} beside it. A model is {WHOLE_MODELS}, or one of "
            f"{list(SHORT_NAMES)}"
        )
    return find_file(found, file_name)


def _files_in(folder: Path, source: str, for_training: bool) -> ModelFiles:
    """Return the files of the model in a folder."""
    if is_many_langs(folder):
        return ModelFiles(source, folder / CONFIG_FILE, folder / ENCODER_FILE)
    if is_training_run(folder):
        for name in (ARCHIVED_WEIGHT_FILE, RUN_WEIGHT_FILE):
            if (folder / name).exists():
                vocabulary = folder / "vocabulary"
                return ModelFiles(source, folder / CONFIG_FILE, folder / name, None, vocabulary)
        raise ValueError(
            f"{folder}: needs {CONFIG_FILE} and {ARCHIVED_WEIGHT_FILE} (an archive) or "
            f"{RUN_WEIGHT_FILE} (the folder of a training run, after the first epoch)"
        )
    if is_hub_module(folder):
        return _with_others(source, *[str(folder / HUB_WEIGHTS)] * 2)
    weights = None if for_training and has_checkpoint(folder) else find_weight_file(folder)
    if weights is None and has_checkpoint(folder):
        weights = find_checkpoint(folder)
    if weights is None:
        raise FileNotFoundError(f"{folder}: there is no {WEIGHT_FILE}; a model is {WHOLE_MODELS}")
    return _with_options(source, weights)


def _with_options(source: str, weights: Path) -> ModelFiles:
    """Return the files of a model whose options are the only ones in the folder of its weights."""
    folder = weights.parent
    options = find_options_file(folder)
    if options is None:
        raise FileNotFoundError(
            f"{folder / OPTIONS_FILE}: there is no such file; bilm-tf writes it beside its "
            "checkpoints, and it is published with every weights.hdf5"
        )
    return _with_others(source, str(options), str(weights))


def _with_others(source: str, options: str, weights: str) -> ModelFiles:
    """Return a model's files with the softmax and the vocabulary that are in the same folder."""
    path = Path(weights)
    beside = path.parent / SOFTMAX_FILE
    softmax = beside if path.is_file() and beside.is_file() else None  # or in the checkpoint
    return ModelFiles(source, Path(options), path, softmax, find_vocabulary_file(path.parent))


def is_short_name(value: str) -> bool:
    """Return whether this is the short name of a model, and no folder."""
    return value in SHORT_NAMES and not os.path.isdir(value)


def find_file(value: str, file_name: str) -> str:
    """Return the path of the options or the weights of an ELMo, or download it."""
    if is_short_name(value):
        if value == _BUNDLED:
            return str(BUNDLED_MODEL / file_name)
        value = _published(value, file_name)
    if "://" in value:
        return cached_path(value)
    if not os.path.exists(value):
        hint = f"nor is it one of the models {list(SHORT_NAMES)}"
        raise FileNotFoundError(f"there is no {value}; {hint}")
    return value


def elmo_model(name: str) -> dict[str, Any]:
    """Return an ELMo's files and `dim`, for which a published model's weights aren't downloaded."""
    paths = name, name
    if is_short_name(name):
        options = BiLmOptions.from_file(find_file(name, OPTIONS_FILE))
    else:
        with find_model(name) as files, files.open() as (options, _):
            pass
        if files.is_pair and files.options.exists():  # in no archive
            paths = str(files.options), str(files.weights)
    return {
        "options_file": paths[0],
        "weight_file": paths[1],
        "dim": len(options.directions) * options.projection_dim,
    }
