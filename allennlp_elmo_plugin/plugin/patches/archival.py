"""Writing and loading archives that contain the ELMo files of their config, as in AllenNLP 0.9."""

import json
import logging
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

from allennlp.common import Params
from allennlp.common.file_utils import cached_path
from allennlp.common.meta import META_NAME
from allennlp.models import Model, archival

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.files.atomic import atomic_file
from allennlp_elmo_plugin.pretrained.file_names import (
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    CONFIG_FILE,
    METRICS_FILE,
    OPTIONS_FILE,
    WEIGHT_FILE,
)
from allennlp_elmo_plugin.pretrained.find_model import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    find_model,
)
from allennlp_elmo_plugin.text.vocabulary import VOCABULARY_FOLDER

logger = logging.getLogger(__name__)

# The names of the archived files by their places in the config, and the folder of these files.
_INDEX = "files_to_archive.json"
_FOLDER = "fta"
# AllenNLP's own, which the plugin replaces under its name.
_load_model = archival._load_model


def archive_model(
    serialization_dir: str | PathLike[str],
    weights: str = archival._DEFAULT_WEIGHTS,
    archive_path: str | PathLike[str] = None,  # type: ignore[assignment]
    include_in_archive: list[str] | None = None,
) -> str:
    """
    Write the archive that AllenNLP's function of this name writes, whole or not at all. It also
    contains the metrics of the run, for the model card of `elmo-export`, and the ELMo files that
    the config names. If these can't be found, it is written without them, with a warning.
    """
    folder = Path(serialization_dir)
    paths = {CONFIG_FILE: folder / CONFIG_FILE, ARCHIVED_WEIGHT_FILE: folder / weights}
    config = json.loads(paths[CONFIG_FILE].read_text(encoding="utf-8"))
    if include_in_archive is None:  # AllenNLP doesn't pass it on after Ctrl-C.
        include_in_archive = config.get("include_in_archive") or []
    for pattern in (VOCABULARY_FOLDER, META_NAME, METRICS_FILE, *include_in_archive):
        paths.update({str(path.relative_to(folder)): path for path in folder.glob(pattern)})
    target = os.fspath(archive_path or folder)
    if os.path.isdir(target):
        target = os.path.join(target, ARCHIVE_FILE)
    logger.info("archiving weights and vocabulary to %s", target)
    # All nodes of a distributed training may write to the same folder.
    with (
        atomic_file(target, wait=True) as staged,
        tarfile.open(staged, "w:gz", dereference=True) as archive,
        ExitStack() as opened,
    ):
        try:
            paths.update(_elmo_files(config, opened))
        except Exception as error:  # such as a download that fails
            logger.warning("The archive is made without its ELMo files: %s", error)
        for name, path in paths.items():
            archive.add(path, name)
    return target


def load_model(config: Params, weights_path: str, serialization_dir: Any, *args: Any) -> Model:
    """Make the model of an unpacked archive as AllenNLP does, but with the archived ELMo files."""
    folder = Path(serialization_dir)
    if (folder / _INDEX).exists():
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        for place, section, names in list(_sections_with_files(config.params)):
            for argument, name in names.items():
                key = f"{place}.{argument}"
                if index.get(key) == name:  # not overridden
                    path = folder / _FOLDER / key
                    if not path.exists():  # A folder with both files is there once.
                        path = folder / _FOLDER / f"{place}.options_file"
                    section[argument] = str(path)
    return _load_model(config, weights_path, serialization_dir, *args)


def _elmo_files(config: dict[str, Any], opened: ExitStack) -> dict[str, Path]:
    """Return the paths of the files that a config names, by their names in an archive."""
    index: dict[str, str] = {}
    paths: dict[str, Path] = {}
    for place, _, names in _sections_with_files(config):
        if files := _files_of_model(opened, **names):
            index.update({f"{place}.{argument}": name for argument, name in names.items()})
            paths.update({f"{_FOLDER}/{place}.{name}": path for name, path in zip(names, files)})
    if index:
        paths[_INDEX] = _new_folder(opened) / _INDEX
        paths[_INDEX].write_text(json.dumps(index, indent=2), encoding="utf-8")
    return paths


def _files_of_model(
    opened: ExitStack, options_file: str = "", weight_file: str = "", archive_file: str = ""
) -> list[Path]:
    """
    Return options.json and weights.hdf5 of an ELMo, or its folder. Of an archive that a model
    starts from, return the archive if it contains ELMo files.
    """
    if archive_file:
        path = Path(cached_path(archive_file))
        path = path / ARCHIVE_FILE if path.is_dir() else path
        with tarfile.open(path) as archive:
            return [path] if _INDEX in archive.getnames() else []
    files = opened.enter_context(find_model(options_file, weight_file))
    if files.layout.read_only:
        return [files.options.parent]
    if files.is_pair:
        return [files.options, files.weights]
    folder = _new_folder(opened)
    ElmoEmbedder(options_file, weight_file).save(folder)
    return [folder / OPTIONS_FILE, folder / WEIGHT_FILE]


def _new_folder(opened: ExitStack) -> Path:
    return Path(opened.enter_context(tempfile.TemporaryDirectory()))


def _sections_with_files(section: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """
    Yield each section of a config that names ELMo files, or an archive that may contain some: its
    place, which is its keys joined by dots, the section, and the names by argument.
    """
    items: Any = section.items() if isinstance(section, dict) else ()
    if isinstance(section, dict):
        is_elmo = section.get("type") == "elmo_token_embedder"
        # Sections of other types may have an `options_file` alone, as those of language models.
        takes_files = is_elmo or "type" not in section or "weight_file" in section
        options = section.get("options_file", DEFAULT_OPTIONS_FILE if is_elmo else None)
        if takes_files and options is not None:
            weights = section.get("weight_file", DEFAULT_WEIGHT_FILE)
            yield place, section, {"options_file": options, "weight_file": weights}
        elif isinstance(section.get("archive_file"), str):
            yield place, section, {"archive_file": section["archive_file"]}
    elif isinstance(section, list):
        items = enumerate(section)
    for key, value in items:
        yield from _sections_with_files(value, f"{place}.{key}" if place else str(key))
