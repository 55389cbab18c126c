"""
AllenNLP's functions that write and load archives, with the ELMo files that a config names inside
the archive, as in AllenNLP 0.9 and in its layout.
"""

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

from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.pretrained.file_names import (
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    METRICS_FILE,
    OPTIONS_FILE,
    WEIGHT_FILE,
)
from allennlp_elmo_plugin.pretrained.find_model import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    find_model,
)
from allennlp_elmo_plugin.pretrained.weight_file import write_weights
from allennlp_elmo_plugin.text.vocabulary_folder import VOCABULARY_FOLDER

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
    Write the archive that AllenNLP's function of this name writes, whole or not at all, with the
    metrics of the run, for the model card of `elmo-export`, and the ELMo files that the config
    names. If they can't be found, they are left out with a warning.
    """
    folder = Path(serialization_dir)
    names = {archival.CONFIG_NAME: archival.CONFIG_NAME, ARCHIVED_WEIGHT_FILE: weights}
    paths = {name: folder / source for name, source in names.items()}
    for path in paths.values():
        if not path.exists():
            raise RuntimeError(f"file '{path}' does not exist, unable to archive model")
    config = json.loads(paths[archival.CONFIG_NAME].read_text(encoding="utf-8"))
    if include_in_archive is None:
        # AllenNLP passes it when a training has ended, but not when it was interrupted.
        include_in_archive = config.get("include_in_archive") or []
    for pattern in (VOCABULARY_FOLDER, META_NAME, METRICS_FILE, *include_in_archive):
        paths.update({str(path.relative_to(folder)): path for path in folder.glob(pattern)})
    target = os.fspath(archive_path or folder)
    if os.path.isdir(target):
        target = os.path.join(target, ARCHIVE_FILE)
    logger.info("archiving weights and vocabulary to %s", target)
    # All nodes of a distributed training may write to the same folder.
    with (
        whole_file(target, wait=True) as staged,
        tarfile.open(staged, "w:gz", dereference=True) as archive,
        tempfile.TemporaryDirectory() as made,
        ExitStack() as opened,
    ):
        try:
            paths.update(_elmo_files(config, Path(made), opened))
        except Exception as error:  # of a download, for instance
            logger.warning("The archive is made without its ELMo files: %s", error)
        for name, path in paths.items():
            archive.add(path, name)
    return target


def load_model(
    config: Params, weights_path: str, serialization_dir: str | PathLike[str], cuda_device: int
) -> Model:
    """
    Make the model of an unpacked archive as AllenNLP's `_load_model` does, but with the files in
    the archive in place of those that the config names.
    """
    folder = Path(serialization_dir)
    if (folder / _INDEX).exists():
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        for place, section, names in list(_sections_with_files(config.params)):
            for argument, name in names.items():
                key = f"{place}.{argument}"
                if index.get(key) == name:  # not overridden
                    path = folder / _FOLDER / key
                    whole = folder / _FOLDER / f"{place}.options_file"
                    section[argument] = str(path if path.exists() else whole)
    return _load_model(config, weights_path, serialization_dir, cuda_device)


def _elmo_files(config: dict[str, Any], made: Path, opened: ExitStack) -> dict[str, Path]:
    """
    Return what an archive has in addition because of the files that the config names: paths by
    names in the archive, which exist until `opened` is closed. The folder `made` gets the index,
    and the two files of a model in other files.
    """
    index: dict[str, str] = {}
    paths: dict[str, Path] = {}
    for place, _, names in _sections_with_files(config):
        if "archive_file" in names:
            found = _archive_with_elmo(**names)
        else:
            found = _elmo(made, opened, **names)
        if found:
            index.update({f"{place}.{argument}": name for argument, name in names.items()})
        for argument, path in zip(names, found):  # A whole model has one path.
            paths[f"{_FOLDER}/{place}.{argument}"] = path
    if index:
        paths[_INDEX] = made / _INDEX
        paths[_INDEX].write_text(json.dumps(index, indent=2), encoding="utf-8")
    return paths


def _elmo(made: Path, opened: ExitStack, options_file: str, weight_file: str) -> list[Path]:
    """Return the paths of options.json and weights.hdf5 of a model, or of a folder with all."""
    files = opened.enter_context(find_model(options_file, weight_file))
    if files.is_many_langs:
        return [files.options.parent]
    if files.is_pair:
        return [files.options, files.weights]
    bilm = ElmoBiLm(options_file, weight_file)
    folder = Path(tempfile.mkdtemp(dir=made))
    bilm.options.write(folder / OPTIONS_FILE)
    write_weights(folder / WEIGHT_FILE, bilm)
    return [folder / OPTIONS_FILE, folder / WEIGHT_FILE]


def _archive_with_elmo(archive_file: str) -> list[Path]:
    """Return the path of an archive that a model starts from, if there are ELMo files in it."""
    path = Path(cached_path(archive_file))
    path = path / ARCHIVE_FILE if path.is_dir() else path
    with tarfile.open(path) as archive:
        return [path] if _INDEX in archive.getnames() else []


def _sections_with_files(
    section: Any, place: str = ""
) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """
    Yield the sections of a config that name ELMo files, or an archive that may have some, each with
    its place, which is the keys that lead there, joined by dots, and with the names by argument.
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
