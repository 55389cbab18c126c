"""
The files of a pretrained model: find or download them by any of their names, and open them; and
find the names in a config.
"""

import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    Weights,
    load,
    open_weights,
    read_options,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import find_checkpoint
from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.model_archive import is_archive, model_folder
from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVED_WEIGHT_FILE,
    CONFIG_FILE,
    OPTIONS_FILE,
    RUN_WEIGHT_FILE,
    SOFTMAX_FILE,
    WEIGHT_FILE,
    WHOLE_MODELS,
    checkpoint_files,
    find_archives,
    find_options_file,
    find_vocabulary_file,
    find_weight_file,
    has_checkpoint,
    is_training_run,
    name_beside,
    options_of,
    weights_of,
)
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.modules.downloads import cached_path
from allennlp_elmo_plugin.modules.language_model_archive import PUBLISHED_ADDRESS, archived_options

logger = logging.getLogger(__name__)

_BUNDLED = "tiny"
BUNDLED_MODEL = Path(__file__).resolve().parents[1] / "pretrained" / _BUNDLED
"""The folder of the model that comes with this package."""

_PUBLISHED_MODELS = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original-5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
"""The published English models by their short names."""

SHORT_NAMES = (_BUNDLED, *_PUBLISHED_MODELS)


def _published(name: str, file_name: str) -> str:
    model = _PUBLISHED_MODELS[name]
    return f"{PUBLISHED_ADDRESS}{model}/elmo_{model}_{file_name}"


DEFAULT_OPTIONS_FILE = _published("original", OPTIONS_FILE)
DEFAULT_WEIGHT_FILE = _published("original", WEIGHT_FILE)


class ModelFiles(NamedTuple):
    """
    The files of a language model on this machine.

    # Parameters

    source : `str`
        The model's name in errors and messages.
    options : `Path`
        options.json, or the config.json of a training run.
    weights : `Path`
        An HDF5 file, the prefix of a checkpoint of TensorFlow, or the state dict of a training run.
    softmax, vocabulary : `Path`, optional
        `None` where there is none, or the softmax is in `weights`.
    """

    source: str
    options: Path
    weights: Path
    softmax: Optional[Path] = None
    vocabulary: Optional[Path] = None

    @property
    def is_run(self) -> bool:
        # or of its archive
        return self.options.name == CONFIG_FILE

    @contextmanager
    def open(self) -> Iterator[Tuple[BiLmOptions, Weights]]:
        """
        Open the weights, and read the options, completed by them. Raise `FileNotFoundError` or
        `ValueError` that names the file and what is wrong with it.
        """
        if self.is_run:
            tensors = read_tensors(self.weights)
            n_words = tensors.get("softmax.bias", torch.empty(0)).numel()
            options = archived_options(self.options.parent, n_words)
            yield options, weights_of_state_dict(str(self.weights), tensors, options)
        else:
            with open_weights(self.weights, self.softmax) as weights:
                values = read_json_object(self.options)
                yield read_options(values, str(self.options), weights), weights


@contextmanager
def find_model(
    options_file: Optional[str], weight_file: Optional[str] = None
) -> Iterator[ModelFiles]:
    """
    Yield the files of a language model; what an address names is downloaded to AllenNLP's cache,
    and an archive is unpacked to a temporary folder until the end of the block.

    # Parameters

    options_file, weight_file : `str`
        The path or address of each file. If one of them is left out (`None`, or the default of
        AllenNLP's token embedder), it is the file beside the other one. Or `options_file` is a
        whole model, and `weight_file` is left out or the same. A whole model is

        - a folder with `options.json` and `weights.hdf5`, as `allennlp elmo-export` writes it.
          Other names are found, too: `model.hdf5` (simple_elmo), `NAME_options.json` and
          `NAME_weights.hdf5` (AllenNLP), or the only files that end with `options.json` and
          `.hdf5`;
        - a zip archive of these files, as in the NLPL vector repository, or a `.tar.gz`;
        - the `model.tar.gz` of a `bidirectional_lm`, or the folder it was trained in;
        - a folder with `options.json` and a checkpoint of bilm-tf, or the path of one of
          several checkpoints, without `.index`. With `weights.hdf5` in the folder, too, the
          checkpoint is meant where there is only one argument, since it has more;
        - a short name: `tiny`, the model in this package, or of the published models `small`,
          `medium`, `original` or `original-5.5b`. A folder of that name with a model in it
          comes first.

    # Raises

    `FileNotFoundError` or `ValueError` that names the path, address or name, and the fix.
    """
    path = os.path.expanduser(options_file or "")
    if weight_file is None and os.path.isdir(path) and not is_short_name(path):
        weights = path
    else:
        path, weights = resolve(options_file, weight_file)
    source = options_file or weights
    if path != weights:
        yield _with_others(ModelFiles(source, Path(path), Path(weights)))
    elif _is_checkpoint(path):
        yield _files_in(Path(path).parent, source, path)
    else:
        with model_folder(path, source) as folder:
            yield _files_in(folder, source)


def _files_in(folder: Path, source: str, checkpoint: Optional[str] = None) -> ModelFiles:
    """
    Return the files of the model in a folder, or of its checkpoint with this prefix.
    """
    if checkpoint is None and is_training_run(folder):
        for name in (ARCHIVED_WEIGHT_FILE, RUN_WEIGHT_FILE):
            if (folder / name).exists():
                vocabulary = folder / "vocabulary"
                return ModelFiles(source, folder / CONFIG_FILE, folder / name, None, vocabulary)
        raise ValueError(
            f"{folder}: needs {CONFIG_FILE} and {ARCHIVED_WEIGHT_FILE} (an archive) or "
            f"{RUN_WEIGHT_FILE} (the folder of a training run, after the first epoch)"
        )
    if checkpoint is not None or has_checkpoint(folder):
        weights: Optional[Path] = Path(find_checkpoint(checkpoint or folder))
    else:
        weights = find_weight_file(folder)
    if weights is None:
        raise FileNotFoundError(f"{folder}: there is no {WEIGHT_FILE}; {_what_is_meant(folder)}")
    options = find_options_file(folder)
    if options is None:
        raise FileNotFoundError(
            f"{folder / OPTIONS_FILE}: there is no such file; bilm-tf writes it beside its "
            "checkpoints, and it is published with every weights.hdf5"
        )
    return _with_others(ModelFiles(source, options, weights))


def _with_others(files: ModelFiles) -> ModelFiles:
    """
    Return a model's files with the softmax and the vocabulary that are in the same folder.
    """
    folder = files.weights.parent
    # A checkpoint has its own.
    has_softmax = files.weights.is_file() and (folder / SOFTMAX_FILE).is_file()
    softmax = folder / SOFTMAX_FILE if has_softmax else None
    return files._replace(softmax=softmax, vocabulary=find_vocabulary_file(folder))


def _what_is_meant(folder: Path) -> str:
    archives = find_archives(folder)  # elmo-import's is alone in its folder
    return f"is {archives[0]} meant?" if archives else f"a model is {WHOLE_MODELS}"


def resolve(
    options_file: Optional[str], weight_file: Optional[str] = None, download: bool = True
) -> Tuple[str, str]:
    """
    Return the paths of the options and the weights of a model, or for one in other files twice the
    path of the archive, the checkpoint or the folder; without downloads, addresses as they are. See
    `find_model`.
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
    if options and weights and options != weights:
        found = (
            find_file(options, OPTIONS_FILE, download),
            find_file(weights, WEIGHT_FILE, download),
        )
        if found[0].endswith(".hdf5") and found[1].endswith(".json"):
            raise ValueError(f"{found[0]} is a weight file, not the options: exchange the two")
        return found
    if _is_one_path(name):
        return name, name
    if os.path.isdir(name) or is_short_name(name):
        return find_file(name, OPTIONS_FILE, download), find_file(name, WEIGHT_FILE, download)
    is_weights = options is None or name.endswith(".hdf5")
    own, other = (WEIGHT_FILE, OPTIONS_FILE) if is_weights else (OPTIONS_FILE, WEIGHT_FILE)
    path = find_file(name, own, download)
    if is_archive(path):
        return path, path
    beside: Any = name_beside(name)
    if "://" not in name:
        beside = options_of(Path(name)) if is_weights else weights_of(Path(name))
    elif default is not None:
        beside = default  # as in AllenNLP, whatever lies beside the weights
    if beside is None and default is None:
        raise ValueError(
            f"{name}: there is no {other} beside it. A model is {WHOLE_MODELS}, or one of "
            f"{list(SHORT_NAMES)}"
        )
    found_beside = find_file(str(beside or default), other, download)
    return (found_beside, path) if is_weights else (path, found_beside)


def _is_one_path(path: str) -> bool:
    """
    Return whether this is a whole model on this machine whose options and weights are not two files
    of the published layout.
    """
    if not os.path.isdir(path):
        return is_archive(path) or _is_checkpoint(path)
    folder = Path(path)
    return is_training_run(folder) or (has_checkpoint(folder) and find_weight_file(folder) is None)


def _is_checkpoint(path: str) -> bool:
    return path.endswith(".index") or (not os.path.exists(path) and os.path.exists(f"{path}.index"))


def is_short_name(value: str) -> bool:
    """
    Return whether this is the short name of a model, and no folder with a model in it.
    """
    if value not in SHORT_NAMES or not os.path.isdir(value):
        return value in SHORT_NAMES
    endings = (OPTIONS_FILE, ".hdf5", ".index", "checkpoint", CONFIG_FILE)
    return not any(name.endswith(endings) for name in os.listdir(value))


def find_file(value: str, file_name: str, download: bool = True) -> str:
    """
    Return the path of the options or the weights of an ELMo, or download it. `value` is the file,
    its folder, its address or the short name of a model.
    """
    address = value
    if is_short_name(value):
        is_bundled = value == _BUNDLED
        address = str(BUNDLED_MODEL / file_name) if is_bundled else _published(value, file_name)
    elif os.path.isdir(value):
        find = find_options_file if file_name == OPTIONS_FILE else find_weight_file
        address = str(find(Path(value)) or Path(value, file_name))
    if "://" in address:
        return cached_path(address) if download else address
    if os.path.exists(address):
        return address
    hint = f"nor is it one of the models {list(SHORT_NAMES)}"
    if os.path.isdir(value):
        hint = _what_is_meant(Path(value))
    raise FileNotFoundError(f"there is no {address}; {hint}")


def local_files(options_file: Optional[str], weight_file: Optional[str] = None) -> List[str]:
    """
    Return the paths of a model that is not downloaded: options before weights, the files of a
    checkpoint, or the archive or folder of a model in other files.
    """
    try:
        options, weights = resolve(options_file, weight_file, download=False)
    except (FileNotFoundError, ValueError):
        return [name for name in (options_file, weight_file) if name and os.path.exists(name)]
    found = list(dict.fromkeys([options, weights]))
    if _is_checkpoint(options):
        beside = find_options_file(Path(options).parent)
        found = [*checkpoint_files(options.removesuffix(".index")), str(beside)]
    return [path for path in found if os.path.exists(path)]


def or_bundled(
    options_file: Optional[str], weight_file: Optional[str]
) -> Tuple[Optional[str], Optional[str]]:
    """
    Return the names of the two files, or without both, the bundled model, which is logged.
    """
    if options_file is not None or weight_file is not None:
        return options_file, weight_file
    logger.warning(
        'No model was named: using "tiny", the small English model of this package. "original" is '
        "the published model that AllenNLP used."
    )
    return str(BUNDLED_MODEL), None


def two_files(options_file: str, weight_file: str, folder: Path) -> Tuple[str, str]:
    """
    Return the paths of options.json and weights.hdf5 of a model. If it is in other files, write the
    two to `folder`.
    """
    paths = resolve(options_file, weight_file)
    if paths[0] != paths[1]:
        return paths
    with find_model(*paths) as files, files.open() as (options, weights):
        weights.check(datasets(options))
        bilm = BiLm(options, device="meta")
        load(bilm, datasets(options), weights)
    options.write(folder / OPTIONS_FILE)
    write_weights(folder / WEIGHT_FILE, bilm)
    return str(folder / OPTIONS_FILE), str(folder / WEIGHT_FILE)


def elmo_sections(section: Any, place: str = "") -> Iterator[Tuple[str, Dict[str, Any]]]:
    """
    Yield the sections of a config with arguments for ELMo files, each with its place: the keys that
    lead there, joined by dots.
    """
    if isinstance(section, dict):
        is_elmo = section.get("type") == "elmo_token_embedder"
        # Sections of other types may have an `options_file` alone, as those of language models.
        takes_files = is_elmo or "type" not in section or "weight_file" in section
        default = DEFAULT_OPTIONS_FILE if is_elmo else None
        if takes_files and section.get("options_file", default) is not None:
            yield place, section
        items: Any = section.items()
    elif isinstance(section, list):
        items = enumerate(section)
    else:
        return
    for key, value in items:
        yield from elmo_sections(value, f"{place}.{key}" if place else str(key))


def file_names(section: Dict[str, Any]) -> Dict[str, str]:
    """
    Return `options_file` and `weight_file` of such a section, or their defaults.
    """
    return {
        "options_file": section.get("options_file", DEFAULT_OPTIONS_FILE),
        "weight_file": section.get("weight_file", DEFAULT_WEIGHT_FILE),
    }
