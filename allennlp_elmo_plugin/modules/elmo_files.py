"""
The files of a pretrained model: find or download them by any of their names, and open them; and
find the names in a config.
"""

import logging
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    Weights,
    load,
    open_weights,
    read_options,
)
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import find_checkpoint
from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
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
from allennlp_elmo_plugin.modules.downloads import cached_path
from allennlp_elmo_plugin.modules.language_model_archive import (
    PUBLISHED_ADDRESS,
    archived_options,
    set_options,
)

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
        What `open_weights` opens.
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
        """
        Whether these are the files of a training run, or of its archive.
        """
        return self.options.name == CONFIG_FILE

    @contextmanager
    def open(self) -> Iterator[Tuple[BiLmOptions, Weights]]:
        """
        Open the weights, and read the options, completed by them.

        # Raises

        `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
        """
        if self.is_run:
            values, source, arguments = archived_options(self.options.parent)
        else:
            values, source, arguments = read_json_object(self.options), str(self.options), {}
        with open_weights(self.weights, self.softmax) as weights:
            set_options(values, arguments, weights.n_words or 0, f"{self.options}, model")
            yield read_options(values, source, weights), weights


class ElmoFiles(NamedTuple):
    """
    The two files of a pretrained ELMo, on this machine. For a model in other files (an archive, a
    checkpoint of bilm-tf, a training run) both are the same path.
    """

    options_file: str
    weight_file: str

    @classmethod
    def find(cls, options_file: Optional[str], weight_file: Optional[str] = None) -> "ElmoFiles":
        """
        Find the files, and download those given by an address to AllenNLP's cache.

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
              several checkpoints, without `.index`;
            - a short name: `tiny`, the model in this package, or of the published models `small`,
              `medium`, `original` or `original-5.5b`. A folder of that name with a model in it
              comes first.

        # Raises

        `FileNotFoundError` for a path, `ConfigurationError` for what cannot be downloaded or is
        ambiguous; they name the value and the fix.
        """
        with _configuration_errors():
            return cls(*_find(options_file, weight_file))

    @contextmanager
    def open(self) -> Iterator[Tuple[BiLmOptions, Weights]]:
        """
        Open the weights, and read the options, completed by them.

        # Raises

        `ConfigurationError` that names the file and what is wrong with it; also for a
        `ValueError` that is raised in the `with` block.
        """
        with _configuration_errors():
            if self.options_file == self.weight_file:
                with _opened(self.options_file, self.options_file) as files:
                    with files.open() as opened:
                        yield opened
                return
            files = ModelFiles("", Path(self.options_file), Path(self.weight_file))
            with files.open() as opened:
                yield opened

    def as_two_files(self, folder: Path) -> "ElmoFiles":
        """
        Return the two files of this model. If it is in other files, write them to `folder`.
        """
        if self.options_file != self.weight_file:
            return self
        with self.open() as (options, weights):
            weights.check(datasets(options))
            bilm = BiLm(options, device="meta")
            load(bilm, datasets(options), weights)
        made = ElmoFiles(str(folder / OPTIONS_FILE), str(folder / WEIGHT_FILE))
        options.write(made.options_file)
        write_weights(made.weight_file, bilm)
        return made


@contextmanager
def _configuration_errors() -> Iterator[None]:
    """
    Raise AllenNLP's `ConfigurationError`, where there is AllenNLP, in place of a `ValueError`.
    """
    try:
        yield
    except ValueError as error:
        with suppress(ImportError):
            from allennlp.common.checks import ConfigurationError

            cause = None if error.__suppress_context__ else error
            raise ConfigurationError(str(error)) from cause
        raise


def or_bundled(
    options_file: Optional[str], weight_file: Optional[str]
) -> Tuple[Optional[str], Optional[str]]:
    """
    Return the names of the two files, or, for a user who named neither, the bundled model, which is
    logged.
    """
    if options_file is None and weight_file is None:
        logger.warning(
            'No model was named: using "%s", the small English model of this package. "original" '
            "is the published model that AllenNLP used.",
            _BUNDLED,
        )
        return str(BUNDLED_MODEL), str(BUNDLED_MODEL)
    return options_file, weight_file


@contextmanager
def find_model(name: str) -> Iterator[ModelFiles]:
    """
    Yield the files of a language model. Those of an archive are in a temporary folder until the end
    of the block.

    # Parameters

    name : `str`
        A whole model, as `ElmoFiles.find` describes it, one of its two files, or the address of
        either or of an archive. Of a folder with weights and a checkpoint, the checkpoint is meant,
        which has more.

    # Raises

    `FileNotFoundError` for a path, `ValueError` for what can't be read or downloaded.
    """
    path = os.path.expanduser(name)
    if not os.path.isdir(path) or is_short_name(path):
        options, path = _find(name, argument="model")
        if options != path:
            yield _with_others(ModelFiles(name, Path(options), Path(path)))
            return
    with _opened(path, name) as files:
        yield files


@contextmanager
def _opened(path: str, source: str) -> Iterator[ModelFiles]:
    if _is_checkpoint(path):
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
    options = find_options_file(folder)
    if checkpoint is not None or has_checkpoint(folder):
        weights: Optional[Path] = Path(find_checkpoint(checkpoint or folder))
    else:
        weights = find_weight_file(folder)
    if weights is None:
        archives = find_archives(folder)
        hint = f"; is {archives[0]} meant?" if archives else ""
        raise FileNotFoundError(
            f"{folder}: there is neither a checkpoint of TensorFlow (model.ckpt-*.index and "
            f"model.ckpt-*.data-*) nor a {WEIGHT_FILE} or another file that ends with .hdf5, and "
            f"the folder is not that of a training run ({CONFIG_FILE}, {RUN_WEIGHT_FILE}){hint}"
        )
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


def _find(
    options_file: Optional[str],
    weight_file: Optional[str] = None,
    argument: str = "options_file",
    download: bool = True,
) -> Tuple[str, str]:
    """
    Do what `ElmoFiles.find` does, or without downloads return addresses as they are. `argument` is
    the name of `options_file` in errors.
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
    is_one_name = options is None or weights in (None, options)
    if is_one_name and _is_one_path(name):
        return name, name
    own, other = (OPTIONS_FILE, argument), (WEIGHT_FILE, "weight_file")
    if not is_one_name or os.path.isdir(name) or is_short_name(name):
        found = [
            find_file(each or name, *kind, download)
            for each, kind in ((options, own), (weights, other))
        ]
        for (_, which), path in zip((own, other), found):
            if is_archive(path):
                raise ValueError(f"{which} {path!r} is the archive of a whole model; give it alone")
        if found[0].endswith(".hdf5") and found[1].endswith(".json"):
            raise ValueError(
                f"{argument} {found[0]!r} is a weight file (HDF5), not the options (JSON): "
                f"exchange {argument} and weight_file"
            )
        return found[0], found[1]
    if options is None or name.endswith(".hdf5"):
        own, other = other, own
    path = find_file(name, *own, download)
    if is_archive(path):
        return path, path
    beside: Any = name_beside(name)
    if not _is_address(name):
        beside = (weights_of if own[0] == OPTIONS_FILE else options_of)(Path(name))
    if beside is None and default is None:
        needs = "" if argument == "model" else f" needs its {other[1]}"
        raise ValueError(
            f"{own[1]} {name!r}{needs}: there is no {other[0]} beside it. A model is "
            f"{WHOLE_MODELS}, or one of {list(SHORT_NAMES)}"
        )
    try:
        found_beside = find_file(str(beside or default), *other, download)
    except ValueError:
        if default is None:
            raise
        # AllenNLP goes by the default, whatever lies beside the weights.
        logger.warning("%s: no such options; using %s", beside, default)
        found_beside = find_file(default, *other, download)
    return (path, found_beside) if own[0] == OPTIONS_FILE else (found_beside, path)


def _is_one_path(path: str) -> bool:
    """
    Return whether this is a whole model on this machine whose options and weights are not two files
    of the published layout.
    """
    if not os.path.isdir(path):
        return is_archive(path) or _is_checkpoint(path)
    folder = Path(path)
    return is_training_run(folder) or (has_checkpoint(folder) and find_weight_file(folder) is None)


def _is_address(name: str) -> bool:
    return "://" in name


def _is_checkpoint(path: str) -> bool:
    return path.endswith(".index") or (not os.path.exists(path) and os.path.exists(f"{path}.index"))


def is_short_name(value: str) -> bool:
    """
    Return whether this is the short name of a model, and no folder with a model in it.
    """
    if value not in SHORT_NAMES or not os.path.exists(value):
        return value in SHORT_NAMES
    names = os.listdir(value) if os.path.isdir(value) else [CONFIG_FILE]
    endings = (OPTIONS_FILE, ".hdf5", ".index", "checkpoint", CONFIG_FILE)
    return not any(name.endswith(endings) for name in names)


def local_files(options_file: Optional[str], weight_file: Optional[str] = None) -> List[str]:
    """
    Return the paths that `options_file` and `weight_file`, or the name of a whole model, mean, and
    that are not downloaded: options before weights, the files of a checkpoint, or the folder of a
    model in other files.
    """
    try:
        options, weights = _find(options_file, weight_file, download=False)
    except (FileNotFoundError, ValueError):
        return [name for name in (options_file, weight_file) if name and os.path.exists(name)]
    found = [options] if options == weights else [options, weights]
    if _is_checkpoint(options):
        beside = find_options_file(Path(options).parent)
        found = [*checkpoint_files(options.removesuffix(".index")), str(beside)]
    return [path for path in found if os.path.exists(path)]


def find_file(value: str, file_name: str, argument: str, download: bool = True) -> str:
    """
    Return the path of the options or the weights of an ELMo, or download it. `value` is the file,
    its folder, its address or the short name of a model; `argument` is its name in errors.
    """
    address = value
    if is_short_name(value):
        is_bundled = value == _BUNDLED
        address = str(BUNDLED_MODEL / file_name) if is_bundled else _published(value, file_name)
    elif os.path.isdir(value):
        find = find_options_file if file_name == OPTIONS_FILE else find_weight_file
        address = str(find(Path(value)) or Path(value, file_name))
    if _is_address(address):
        return _download(address, value, argument) if download else address
    if os.path.exists(address):
        return address
    hint = f"nor is it one of the models {list(SHORT_NAMES)}"
    if os.path.isdir(value):
        folder = Path(value)
        meant = [each.parent for each in sorted(folder.glob(f"*/*{OPTIONS_FILE}"))]
        meant += find_archives(folder)  # elmo-import's is alone in its folder
        hint = f"the folder of an ELMo has {OPTIONS_FILE} and {WEIGHT_FILE}"
        hint += f"; is {meant[0]} meant?" if meant else ""
    raise FileNotFoundError(f"{argument} {value!r}: there is no {address}; {hint}")


def _download(address: str, value: str, argument: str) -> str:
    """
    Return the local path of an address. `value` is what the user named.
    """
    try:
        return cached_path(address)
    except FileNotFoundError as error:
        raise ValueError(f"{argument} {value!r}: there is no {address}") from error
    except Exception as error:  # of any of the libraries that know how to download
        raise ValueError(
            f"{argument} {value!r}: cannot download {address}, and it is not in AllenNLP's cache "
            f"({type(error).__name__}: {shown(error, 200)}). Without a connection, give the path "
            "of a file that was downloaded elsewhere"
        ) from None


def elmo_sections(section: Any, place: str = "") -> Iterator[Tuple[str, Dict[str, Any]]]:
    """
    Yield the sections of a config with arguments for ELMo files, each with its place: the keys that
    lead there, joined by dots.
    """
    if isinstance(section, dict):
        is_elmo = section.get("type") in ("elmo_token_embedder", "elmo_multi_token_embedder")
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
