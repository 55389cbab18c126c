"""
The two files of a pretrained ELMo: find or download them, open them, and find them in a config.
"""

import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import CACHE_DIRECTORY, cached_path

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import Hdf5Variables, read_options
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE, WEIGHT_FILE

_PUBLISHED_MODELS = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original-5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
"""The published English models by their short names."""


def _published(name: str, file_name: str) -> str:
    model = _PUBLISHED_MODELS[name]
    return f"https://allennlp.s3.amazonaws.com/models/elmo/{model}/elmo_{model}_{file_name}"


DEFAULT_OPTIONS_FILE = _published("original", OPTIONS_FILE)
DEFAULT_WEIGHT_FILE = _published("original", WEIGHT_FILE)


class ElmoFiles(NamedTuple):
    """
    The two files of a pretrained ELMo, on this machine.
    """

    options_file: str
    weight_file: str

    @classmethod
    def find(cls, options_file: str, weight_file: Optional[str] = None) -> "ElmoFiles":
        """
        Find the files, and download those given by an address to AllenNLP's cache.

        # Parameters

        options_file, weight_file : `str`
            Each of them a path, an address, a folder with `options.json` and `weights.hdf5` (as
            `allennlp elmo-export` writes it), or the short name of a published model: `small`,
            `medium`, `original` or `original-5.5b`. If `options_file` is a folder or a short name,
            `weight_file` may be left out, or be its default.

        # Raises

        `FileNotFoundError` for a path, `ConfigurationError` for what cannot be downloaded; they
        name the value and the fix.
        """
        options_file = os.path.expanduser(options_file)
        if os.path.isdir(options_file) or _is_short_name(options_file):
            if weight_file in (None, DEFAULT_WEIGHT_FILE):
                weight_file = options_file
        if weight_file is None:
            raise ConfigurationError(
                f"options_file {options_file!r} needs its weight_file: only a folder or the short "
                "name of a published model has both"
            )
        return cls(
            find_file(options_file, OPTIONS_FILE, "options_file"),
            find_file(os.path.expanduser(weight_file), WEIGHT_FILE, "weight_file"),
        )

    @contextmanager
    def open(self) -> Iterator[Tuple[BiLmOptions, Hdf5Variables]]:
        """
        Open the weights, and read the options, completed by them.

        # Raises

        `ConfigurationError` that names the file and what is wrong with it; also for a
        `ValueError` that is raised in the `with` block.
        """
        import h5py

        try:
            values = read_json_object(self.options_file)
        except ValueError as error:
            if os.path.isfile(self.options_file) and h5py.is_hdf5(self.options_file):
                raise ConfigurationError(
                    f"options_file {self.options_file!r} is a weight file (HDF5), not the options "
                    "(JSON): exchange options_file and weight_file"
                ) from error
            raise ConfigurationError(str(error)) from error
        try:
            with Hdf5Variables(self.weight_file) as variables:
                yield read_options(values, self.options_file, variables), variables
        except ValueError as error:
            raise ConfigurationError(str(error)) from error


def _is_short_name(value: str) -> bool:
    return value in _PUBLISHED_MODELS and not os.path.isfile(value)


def find_file(value: str, file_name: str, argument: str) -> str:
    """
    Return the local path of a file of an ELMo, or download it. `value` is the file, its folder, its
    address or the short name of a published model; `argument` is its name in errors.
    """
    address = os.path.join(value, file_name) if os.path.isdir(value) else value
    if _is_short_name(value) and not os.path.isfile(address):
        address = _published(value, file_name)
    try:
        return cached_path(address)
    except FileNotFoundError as error:
        if "://" in address:
            raise ConfigurationError(f"{argument} {value!r}: there is no {address}") from error
        hint = f"nor is it one of the published models {list(_PUBLISHED_MODELS)}"
        if os.path.isdir(value):
            hint = f"the folder of an ELMo has {OPTIONS_FILE} and {WEIGHT_FILE}"
        raise FileNotFoundError(f"{argument} {value!r}: there is no {address}; {hint}") from error
    except Exception as error:  # of any of the libraries that know how to download
        raise ConfigurationError(
            f"{argument} {value!r}: cannot download {address}, and it is not in AllenNLP's cache "
            f"{CACHE_DIRECTORY} ({type(error).__name__}: {error}). Without a connection, give the "
            "path of a file that was downloaded elsewhere"
        ) from error


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
