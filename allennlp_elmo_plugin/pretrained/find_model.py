"""Find or download the files of a pretrained model by any of their names, and open them."""

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
from allennlp_elmo_plugin.files.whole import PathLike
from allennlp_elmo_plugin.pretrained import file_names as names
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


DEFAULT_OPTIONS_FILE = _published("original", names.OPTIONS_FILE)
DEFAULT_WEIGHT_FILE = _published("original", names.WEIGHT_FILE)


class ModelFiles(NamedTuple):
    """
    The files of a language model on this machine. `source` is its name in messages. `options` is
    options.json, the config.json of a training run or of ELMoForManyLangs, or the same as `weights`
    if their shapes tell the options. `weights` is an HDF5 file, the prefix of a TensorFlow
    checkpoint, or a state dict. `softmax` is `None` if there is none, or if `weights` has it.
    """

    source: str
    options: Path
    weights: Path
    softmax: Path | None = None
    vocabulary: Path | None = None

    @property
    def is_run(self) -> bool:
        return self.options.name == names.CONFIG_FILE and not self.is_many_langs  # or its archive

    @property
    def is_many_langs(self) -> bool:
        return self.weights.name == names.ENCODER_FILE

    @property
    def is_pair(self) -> bool:
        """Whether these are options.json and an HDF5 file, as AllenNLP reads them."""
        return not self.is_run and self.weights.suffix == ".hdf5"

    @contextmanager
    def open(self) -> Iterator[tuple[BiLmOptions, Weights]]:
        """Open the weights, and read the options. Errors in the block name the training's text."""
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
    """Return what ELMoForManyLangs' config.json and NLPL's meta.json say about the text."""
    paths = filter(Path.is_file, (folder / names.CONFIG_FILE, folder / "meta.json"))
    content = "".join(path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace") for path in paths)
    texts = re.findall(r'"(?:train_path|language)": *"([^"\\]+)"', content)
    return f" (trained on {shown(', '.join(dict.fromkeys(texts)), 200)})" if texts else ""


@contextmanager
def find_model(
    options_file: PathLike | None, weight_file: PathLike | None = None, for_training: bool = False
) -> Iterator[ModelFiles]:
    """
    Yield the files of a language model. Files with an address are downloaded to a cache. An archive
    is unpacked to a temporary folder until the block ends.

    # Parameters

    options_file, weight_file : `str | PathLike[str]`
        The path or address of each file. One that is left out (`None`, or the default of AllenNLP's
        token embedder) is the file beside the other. Or `options_file` is a whole model, and
        `weight_file` is left out or the same. A whole model is

        - a folder with `options.json` and `weights.hdf5`, or with other publishers' names: see
          `weights_of`;
        - a zip archive of these files, as in the NLPL vector repository, or a `.tar.gz`;
        - the `model.tar.gz` of a `bidirectional_lm`, or the folder it was trained in;
        - the folder or archive of a model of ELMoForManyLangs or of a module of TensorFlow Hub;
        - a folder with `options.json` and a checkpoint of bilm-tf, or the path of one of several
          checkpoints, without `.index`;
        - `hf://USER/MODEL`, on the Hugging Face Hub;
        - a short name: `tiny`, the model in this package, or one of the published models `small`,
          `medium`, `original` and `original-5.5b`. A folder of that name comes first.
    for_training : `bool`, optional (default = `False`)
        In a folder with both, choose the checkpoint, which has more, rather than `weights.hdf5`.

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
    source = os.fspath(options_file or name)
    if is_short_name(name):
        options, weights = name, weights or name
    elif options == weights:
        weights = None
    if options and weights:
        if options.endswith(".hdf5"):
            raise ValueError(f"{options}: these are weights; options_file comes before weight_file")
        paths = find_file(options, names.OPTIONS_FILE), find_file(weights, names.WEIGHT_FILE)
        yield _with_others(source, *paths)
    elif name.endswith(".index") or (not os.path.exists(name) and os.path.exists(f"{name}.index")):
        yield _with_options(source, Path(name.removesuffix(".index")))
    else:
        is_weights = options is None or name.endswith(".hdf5")
        path = find_file(name, names.WEIGHT_FILE if is_weights else names.OPTIONS_FILE)
        if os.path.isdir(path) or is_archive(path):
            with model_folder(path, source) as folder:
                yield _files_in(folder, source, for_training)
        elif is_weights:
            yield _with_others(source, _beside(name, names.OPTIONS_FILE, default), path)
        else:
            yield _with_others(source, path, _beside(name, names.WEIGHT_FILE))


def _beside(name: str, file_name: str, default: str | None = None) -> str:
    """Return the path of the options that belong to weights, or the reverse."""
    path: str | Path | None
    if "://" in name:
        path = default or names.name_beside(name)
    else:
        belonging = names.options_of if file_name == names.OPTIONS_FILE else names.weights_of
        path = belonging(Path(name)) or default
    if path is None:
        raise ValueError(
            f"{name}: there is no {file_name} beside it. A model is {names.WHOLE_MODELS}, or one "
            f"of {list(SHORT_NAMES)}"
        )
    return find_file(str(path), file_name)


def _files_in(folder: Path, source: str, for_training: bool) -> ModelFiles:
    """Return the files of the model in a folder."""
    config = folder / names.CONFIG_FILE
    if names.first_file(folder, [names.ENCODER_FILE, names.TOKEN_EMBEDDER_FILE]):
        return ModelFiles(source, config, folder / names.ENCODER_FILE)
    if names.is_training_run(folder):
        weights = names.first_file(folder, names.RUN_WEIGHT_FILES)
        if weights is not None:
            return ModelFiles(source, config, weights, None, folder / "vocabulary")
        raise ValueError(
            f"{folder}: needs {names.CONFIG_FILE} and {names.ARCHIVED_WEIGHT_FILE} (an archive) or "
            f"{names.RUN_WEIGHT_FILE} (the folder of a training run, after the first epoch)"
        )
    if names.is_hub_module(folder):
        return _with_others(source, *[str(folder / names.HUB_WEIGHTS)] * 2)
    weights = find_checkpoint(folder) if for_training else None
    if weights is None:
        options = names.find_options_file(folder) or folder / names.OPTIONS_FILE
        weights = names.weights_of(options) or find_checkpoint(folder)
    if weights is None:
        raise FileNotFoundError(
            f"{folder}: there is no {names.WEIGHT_FILE}; a model is {names.WHOLE_MODELS}"
        )
    return _with_options(source, weights)


def _with_options(source: str, weights: Path) -> ModelFiles:
    """Return the files of a model whose options are the only ones in the folder of its weights."""
    folder = weights.parent
    options = names.find_options_file(folder)
    if options is None:
        raise FileNotFoundError(
            f"{folder / names.OPTIONS_FILE}: there is no such file; bilm-tf writes it beside its "
            "checkpoints, and it is published with every weights.hdf5"
        )
    return _with_others(source, str(options), str(weights))


def _with_others(source: str, options: str, weights: str) -> ModelFiles:
    """Return a model's files with the softmax and the vocabulary in the folder of its weights."""
    path = Path(weights)
    softmax = path.parent / names.SOFTMAX_FILE
    has_softmax = path.is_file() and softmax.is_file()  # A checkpoint contains its own.
    vocabulary = names.find_vocabulary_file(path.parent)
    return ModelFiles(source, Path(options), path, softmax if has_softmax else None, vocabulary)


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
    """Return an ELMo's two files and `dim`, for a short name without a download of its weights."""
    paths = name, name
    if is_short_name(name):
        options = BiLmOptions.from_file(find_file(name, names.OPTIONS_FILE))
    else:
        with find_model(name) as files, files.open() as (options, _):
            pass
        if files.is_pair and files.options.exists():  # in no archive
            paths = str(files.options), str(files.weights)
    dim = len(options.directions) * options.projection_dim
    return {"options_file": paths[0], "weight_file": paths[1], "dim": dim}
