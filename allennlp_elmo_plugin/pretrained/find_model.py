"""Find or download the files of a pretrained model by any of their names, and open them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.exits import joined
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.archive import is_archive, model_folder
from allennlp_elmo_plugin.pretrained.checkpoints import LAYOUTS
from allennlp_elmo_plugin.pretrained.checkpoints.bilm_tf import only_options
from allennlp_elmo_plugin.pretrained.checkpoints.layout import ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import PUBLISHED_ADDRESS
from allennlp_elmo_plugin.pretrained.downloads import cached_path, is_address

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
        - the `model.tar.gz` of a `bidirectional_lm`, or the folder of `elmo-import` or training:
          the model of the best epoch or, before an epoch has ended, of the checkpoint;
        - `checkpoint.pt` in the folder of a training, the model of its last batches;
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
        found = find_file(options, names.OPTIONS_FILE), find_file(weights, names.WEIGHT_FILE)
    elif os.path.basename(name) == names.CHECKPOINT_FILE:
        settings = names.first_file(Path(name).parent, (names.TRAINING_FILE, names.CONFIG_FILE))
        if settings is None:
            raise ValueError(f"{name}: there is no {names.TRAINING_FILE} of its run beside it")
        found = str(settings), find_file(name, names.CHECKPOINT_FILE)
    elif name.endswith(".index") or (not os.path.exists(name) and os.path.exists(f"{name}.index")):
        weights = name.removesuffix(".index")
        found = str(only_options(Path(weights).parent)), weights
    else:
        is_weights = options is None or name.endswith(".hdf5")
        path = find_file(name, names.WEIGHT_FILE if is_weights else names.OPTIONS_FILE)
        path = str(names.archive_in(Path(path)) or path)
        if os.path.isdir(path) or is_archive(path):
            with model_folder(path, source) as folder:
                yield _files_in(folder, source, for_training)
            return
        if is_weights:
            found = _beside(name, names.OPTIONS_FILE, default), path
        else:
            found = path, _beside(name, names.WEIGHT_FILE)
    layout = next(layout for layout in LAYOUTS if found[1].endswith(layout.ending))
    yield layout.files(source, *map(Path, found))


def _beside(name: str, file_name: str, default: str | None = None) -> str:
    """Return the path of the options that belong to weights, or the reverse."""
    path: str | Path | None
    if is_address(name):
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
    for layout in LAYOUTS:
        if found := layout.find(folder, for_training):
            return layout.files(source, *found)
    if (folder / names.TRAINING_FILE).exists():
        raise FileNotFoundError(
            f"{folder}: this training has no model before its first checkpoint; continue it with: "
            f"allennlp-elmo-plugin elmo-train --resume --output {joined([str(folder)])}"
        )
    raise FileNotFoundError(
        f"{folder}: there is no {names.WEIGHT_FILE}; a model is {names.WHOLE_MODELS}"
    )


def is_short_name(value: str) -> bool:
    """Return whether this is the short name of a model, and no folder."""
    return value in SHORT_NAMES and not os.path.isdir(value)


def find_file(value: str, file_name: str) -> str:
    """Return the path of the options or the weights of an ELMo, or download it."""
    if is_short_name(value):
        if value == _BUNDLED:
            return str(BUNDLED_MODEL / file_name)
        value = _published(value, file_name)
    if is_address(value):
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
