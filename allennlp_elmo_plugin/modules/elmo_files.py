"""
The files of a pretrained ELMo: find or download a model by any of its names, open it, and find the
names in a config.
"""

import logging
import os
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import CACHE_DIRECTORY

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    Hdf5Variables,
    SavedVariables,
    load,
    read_options,
)
from allennlp_elmo_plugin.bilm.checkpoints.weights import write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.model_archive import errors_that_name, is_archive, model_folder
from allennlp_elmo_plugin.files.model_file_names import (
    ADAGRAD_FILE,
    OPTIONS_FILE,
    SOFTMAX_FILE,
    WEIGHT_FILE,
    WHOLE_MODELS,
    checkpoint_files,
    find_archives,
    find_options_file,
    find_vocabulary_file,
    find_weight_file,
    has_checkpoint,
    has_model,
    is_one_of_two_files,
    is_training_run,
    name_beside,
)
from allennlp_elmo_plugin.modules.downloads import cached_path
from allennlp_elmo_plugin.modules.language_model_archive import PUBLISHED_ADDRESS, open_published

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
        options_file, weight_file = (
            os.path.expanduser(name) if name else None for name in (options_file, weight_file)
        )
        if options_file is not None and weight_file in (None, DEFAULT_WEIGHT_FILE, options_file):
            if _is_one_path(options_file):
                return cls(options_file, options_file)
            if os.path.isdir(options_file) or is_short_name(options_file):
                weight_file = options_file
            elif weight_file != options_file and options_file.endswith(".hdf5"):
                options_file, weight_file = None, options_file
        if options_file is None or (
            options_file == DEFAULT_OPTIONS_FILE and weight_file not in (None, DEFAULT_WEIGHT_FILE)
        ):
            return cls._of_weights(options_file, weight_file)
        found = find_file(options_file, OPTIONS_FILE, "options_file")
        if is_archive(found):
            if weight_file not in (None, DEFAULT_WEIGHT_FILE, options_file):
                raise ConfigurationError(
                    f"options_file {options_file!r} is the archive of a whole model; leave out the "
                    f"weight_file {weight_file!r}"
                )
            return cls(found, found)
        if not _may_be_one_of_two_files(found):
            raise ConfigurationError(
                f"options_file {options_file!r} is not a model: expected {WHOLE_MODELS}, or one of "
                f"{list(SHORT_NAMES)}"
            )
        if weight_file in (None, DEFAULT_WEIGHT_FILE):
            weight_file = _beside(options_file, WEIGHT_FILE, "options_file") or weight_file
        if weight_file is None:
            raise ConfigurationError(
                f"options_file {options_file!r} needs its weight_file: there is no {WEIGHT_FILE} "
                "beside it"
            )
        weights = find_file(weight_file, WEIGHT_FILE, "weight_file")
        # `is_zipfile` alone finds zip archives in the numbers of some weights.
        if is_archive(weights) and (zipfile.is_zipfile(weights) or tarfile.is_tarfile(weights)):
            raise ConfigurationError(
                f"weight_file {weight_file!r} is the archive of a whole model; give it alone, as "
                "options_file"
            )
        return cls(found, weights)

    @classmethod
    def _of_weights(cls, options_file: Optional[str], weight_file: Optional[str]) -> "ElmoFiles":
        """
        Find the options beside weights; `options_file` is used if there are none.
        """
        if weight_file is None:
            raise ConfigurationError(
                'no model was named: give options_file, a path or a short name such as "tiny"'
            )
        if os.path.isdir(weight_file) or is_short_name(weight_file) or _is_one_path(weight_file):
            return cls.find(weight_file)
        found = find_file(weight_file, WEIGHT_FILE, "weight_file")
        if is_archive(found):
            return cls(found, found)
        beside = _beside(weight_file, OPTIONS_FILE, "weight_file")
        if beside is not None:
            try:
                return cls(find_file(beside, OPTIONS_FILE, "options_file"), found)
            except ConfigurationError:
                if options_file is None or not _is_address(beside):
                    raise
                # AllenNLP goes by the default, whatever lies beside the weights.
                logger.warning("%s: no such options; using %s", beside, options_file)
        if options_file is None:
            raise ConfigurationError(
                f"weight_file {weight_file!r} needs its options_file: there is no {OPTIONS_FILE} "
                "beside it"
            )
        return cls(find_file(options_file, OPTIONS_FILE, "options_file"), found)

    @contextmanager
    def open(self) -> Iterator[Tuple[BiLmOptions, SavedVariables]]:
        """
        Open the weights, and read the options, completed by them.

        # Raises

        `ConfigurationError` that names the file and what is wrong with it; also for a
        `ValueError` that is raised in the `with` block.
        """
        import h5py

        try:
            if self._is_whole:
                path = self.options_file
                with _opened(path, path) as folder, open_published(folder, path) as opened:
                    yield opened
                return
            try:
                values = read_json_object(self.options_file)
            except ValueError as error:
                if os.path.isfile(self.options_file) and h5py.is_hdf5(self.options_file):
                    raise ConfigurationError(
                        f"options_file {self.options_file!r} is a weight file (HDF5), not the "
                        "options (JSON): exchange options_file and weight_file"
                    ) from error
                raise
            with Hdf5Variables(self.weight_file) as variables:
                yield read_options(values, self.options_file, variables), variables
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def _is_whole(self) -> bool:
        return self.options_file == self.weight_file and _is_one_path(self.options_file)

    def as_two_files(self, folder: Path) -> "ElmoFiles":
        """
        Return the two files of this model. If it is in other files, write them to `folder`.
        """
        if not self._is_whole:
            return self
        with self.open() as (options, variables):
            variables.check(datasets(options))
            bilm = BiLm(options, device="meta")
            load(bilm, datasets(options), variables)
        made = ElmoFiles(str(folder / OPTIONS_FILE), str(folder / WEIGHT_FILE))
        options.write(made.options_file)
        write_weights(made.weight_file, bilm)
        return made


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
def find_model(name: str) -> Iterator[Path]:
    """
    Yield the folder with the files of a language model, or the prefix of its checkpoint. The files
    of an archive, and those that are downloaded one by one, are in a temporary folder until the end
    of the block.

    # Parameters

    name : `str`
        A whole model, as `ElmoFiles.find` describes it, or the address of an archive.

    # Raises

    `FileNotFoundError` for a path, `ValueError` for an archive that can't be read,
    `ConfigurationError` for what can't be downloaded.
    """
    path = os.path.expanduser(name)
    if not path:
        raise ConfigurationError("no model was named: its name is empty")
    if path == _BUNDLED and is_short_name(path):
        yield BUNDLED_MODEL
        return
    is_file = is_one_of_two_files(path) and os.path.isfile(path)
    if is_file and _means_its_folder(path):
        yield Path(path).parent
        return
    if is_file or is_short_name(path) or (is_one_of_two_files(path) and _is_address(path)):
        with tempfile.TemporaryDirectory() as folder:
            for file, own_name in zip(ElmoFiles.find(path), (OPTIONS_FILE, WEIGHT_FILE)):
                os.symlink(os.path.abspath(file), os.path.join(folder, own_name))
            if is_file:  # There may be files of other models, but one softmax and vocabulary.
                parent = Path(path).parent
                for other in (parent / SOFTMAX_FILE, find_vocabulary_file(parent)):
                    if other is not None and other.is_file():
                        link = Path(folder) / other.relative_to(parent)
                        link.parent.mkdir(exist_ok=True)
                        os.symlink(other.resolve(), link)
            with errors_that_name(name, Path(folder)):
                yield Path(folder)
        return
    if not _is_checkpoint(path):
        try:
            path = _download(path, name, "model")
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no archive or folder {name}, no checkpoint {name}.index, nor is it "
                f"one of the models {list(SHORT_NAMES)}"
            ) from error
    with _opened(path, name) as found:
        yield found


@contextmanager
def _opened(path: str, source: str) -> Iterator[Path]:
    if _is_checkpoint(path):
        yield Path(path)
    else:
        with model_folder(path, source) as folder:
            yield folder


def _is_one_path(path: str) -> bool:
    """
    Return whether this is a whole model on this machine whose options and weights are not two files
    of the published layout.
    """
    if not os.path.isdir(path):
        return is_archive(path) or _is_checkpoint(path)
    folder = Path(path)
    if is_training_run(folder):
        return True
    return has_checkpoint(folder) and _find_in(path, WEIGHT_FILE, "options_file") is None


def _may_be_one_of_two_files(path: str) -> bool:
    """
    Return whether a file has the name or the first bytes of options (JSON) or weights (HDF5), so
    that their readers can say what is wrong with it.
    """
    if path.endswith((".json", ".hdf5")):
        return True
    with open(path, "rb") as file:
        start = file.read(64)
    return start.startswith(b"\x89HDF") or start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _is_address(name: str) -> bool:
    return "://" in name


def _beside(name: str, file_name: str, argument: str) -> Optional[str]:
    """
    Return the path or address of the other file of a model in two files, `name` being one of them;
    `None` if there is none on this machine. `file_name` says which one is sought.
    """
    by_name = name_beside(name)
    if _is_address(name) or (by_name is not None and os.path.exists(by_name)):
        return by_name
    folder = os.path.dirname(name) or os.curdir
    found = _find_in(folder, file_name, argument)
    if found is None:
        return None
    # It may belong to another model: by its name, or as the only weights beside several options.
    partner = name_beside(found)
    if file_name == WEIGHT_FILE and (partner is None or not os.path.exists(partner)):
        partner = _find_in(folder, OPTIONS_FILE, argument)
    if partner is not None and os.path.exists(partner) and not os.path.samefile(partner, name):
        return None
    return found


def _means_its_folder(path: str) -> bool:
    """Return whether options or weights are those of a folder that has no others."""
    folder = Path(path).parent
    names = {each.name for each in (*folder.glob(f"*{OPTIONS_FILE}"), *folder.glob("*.hdf5"))}
    if WEIGHT_FILE in names and has_checkpoint(folder):
        return False
    return names <= {OPTIONS_FILE, WEIGHT_FILE, SOFTMAX_FILE, ADAGRAD_FILE}


def _is_checkpoint(path: str) -> bool:
    return path.endswith(".index") or (not os.path.exists(path) and os.path.exists(f"{path}.index"))


def is_short_name(value: str) -> bool:
    """
    Return whether this is the short name of a model, and no folder with a model in it.
    """
    if value not in SHORT_NAMES or os.path.isfile(value):
        return False
    return not (os.path.isdir(value) and has_model(Path(value)))


def _find_in(folder: str, file_name: str, argument: str) -> Optional[str]:
    """
    Return the options or the weights in a folder; `file_name` says which.
    """
    find = find_options_file if file_name == OPTIONS_FILE else find_weight_file
    try:
        found = find(Path(folder))
    except ValueError as error:
        raise ConfigurationError(f"{argument}: {error}") from error
    return None if found is None else str(found)


def local_files(*names: Optional[str]) -> List[str]:
    """
    Return the paths that `options_file` and `weight_file`, or the name of a whole model, mean, and
    that are not downloaded: options before weights, the files of a checkpoint, or the folder of a
    model in other files.
    """
    given = [os.path.expanduser(name).rstrip("/") or "/" for name in names if name]
    found: List[Optional[str]] = []
    for path in given:
        if is_short_name(path):
            if path != _BUNDLED:
                continue
            path = str(BUNDLED_MODEL)
        if os.path.isdir(path):
            pair: List[Optional[str]] = [None, None]
            if not _is_one_path(path):
                pair = [_find_in(path, each, "model") for each in (OPTIONS_FILE, WEIGHT_FILE)]
            found += [path] if None in pair else pair
        elif _is_checkpoint(path):
            files = checkpoint_files(path.removesuffix(".index"))
            found += [each for each in files if os.path.isfile(each)]
            found.append(_find_in(os.path.dirname(path) or os.curdir, OPTIONS_FILE, "model"))
        elif os.path.isfile(path):
            is_options = path.endswith(OPTIONS_FILE)
            beside = None
            if len(given) == 1 and is_one_of_two_files(path):
                beside = _beside(path, WEIGHT_FILE if is_options else OPTIONS_FILE, "model")
            found += [path, beside] if is_options else [beside, path]
    return [each for each in found if each is not None]


def find_file(value: str, file_name: str, argument: str) -> str:
    """
    Return the local path of a file of an ELMo, or download it. `value` is the file, its folder, its
    address or the short name of a model; `argument` is its name in errors.
    """
    address = value
    if is_short_name(value):
        is_bundled = value == _BUNDLED
        address = str(BUNDLED_MODEL / file_name) if is_bundled else _published(value, file_name)
    elif os.path.isdir(value):
        address = _find_in(value, file_name, argument) or os.path.join(value, file_name)
    try:
        return _download(address, value, argument)
    except FileNotFoundError as error:
        hint = f"nor is it one of the models {list(SHORT_NAMES)}"
        if os.path.isdir(value):
            folder = Path(value)
            meant = [each.parent for each in sorted(folder.glob(f"*/*{OPTIONS_FILE}"))]
            meant += find_archives(folder)  # elmo-import's is alone in its folder
            hint = f"the folder of an ELMo has {OPTIONS_FILE} and {WEIGHT_FILE}"
            hint += f"; is {meant[0]} meant?" if meant else ""
        raise FileNotFoundError(f"{argument} {value!r}: there is no {address}; {hint}") from error


def _download(address: str, value: str, argument: str) -> str:
    """
    Return the local path of an address or path. `value` is what the user named.
    """
    try:
        return cached_path(address)
    except FileNotFoundError as error:
        if not _is_address(address):
            raise
        raise ConfigurationError(f"{argument} {value!r}: there is no {address}") from error
    except Exception as error:  # of any of the libraries that know how to download
        raise ConfigurationError(
            f"{argument} {value!r}: cannot download {address}, and it is not in AllenNLP's cache "
            f"{CACHE_DIRECTORY} ({type(error).__name__}: {shown(error, 200)}). Without a "
            "connection, give the path of a file that was downloaded elsewhere"
        ) from (None if isinstance(error, ConnectionError) else error)


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
