"""
AllenNLP's functions that write and load archives, with the ELMo files that a config names inside
the archive, as in AllenNLP 0.9 and in its layout.
"""

import glob
import io
import json
import logging
import os
import re
import tarfile
import tempfile
from os import PathLike
from pathlib import Path
from typing import Dict, List, Optional, Tuple, Union

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.meta import META_NAME
from allennlp.models import Model, archival

from allennlp_elmo_plugin.data.vocabulary import VOCABULARY_FOLDER
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    METRICS_FILE,
)
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles, elmo_sections, file_names

logger = logging.getLogger(__name__)

# AllenNLP's functions, before the plugin replaces them.
_load_model = archival._load_model

# The names of the archived files by their places in the config, and the folder of these files.
_INDEX = "files_to_archive.json"
_FOLDER = "fta"
# The head of an archived config that names them. AllenNLP evaluates every config with jsonnet.
_BESIDE_CONFIG = f"""
local config = std.thisFile;
local folder = std.substr(config, 0, std.length(config) - {len(archival.CONFIG_NAME)});
"""


def archive_model(
    serialization_dir: Union[str, "PathLike[str]"],
    weights: str = archival._DEFAULT_WEIGHTS,
    archive_path: Union[str, "PathLike[str]"] = None,  # type: ignore[assignment]
    include_in_archive: Optional[List[str]] = None,
) -> str:
    """
    Write the archive that AllenNLP's function of this name writes, and add the ELMo files that the
    config names. The archived config names these, so that the archive loads anywhere, also with
    AllenNLP alone. If they can't be found, they are left out with a warning. The metrics of the
    run, if there are any, are in the archive, too, for the model card of `elmo-export`.

    The archive replaces an earlier one when it is complete. Nothing else in `serialization_dir`
    changes.

    # Raises

    `RuntimeError`
        There are no weights, or no config.
    """
    folder = os.fspath(serialization_dir)
    weights_path = os.path.join(folder, weights)
    config_path = os.path.join(folder, archival.CONFIG_NAME)
    for kind, path in (("weights", weights_path), ("config", config_path)):
        if not os.path.exists(path):
            raise RuntimeError(f"{kind} file '{path}' does not exist, unable to archive model")
    target = folder if archive_path is None else os.fspath(archive_path)
    if os.path.isdir(target):
        target = os.path.join(target, ARCHIVE_FILE)
    logger.info("archiving weights and vocabulary to %s", target)

    if include_in_archive is None:
        # AllenNLP passes it when a training has ended, but not when it was interrupted.
        include_in_archive = _included(config_path)
    # All nodes of a distributed training may write to the same folder.
    with (
        whole_file(target, wait=True) as staged,
        tarfile.open(staged, "w:gz") as archive,
        tempfile.TemporaryDirectory() as made,
    ):
        elmo_files = _find_elmo_files(config_path, Path(made))
        if elmo_files:
            config_path = _with_archived_files(config_path, Path(made))
        for path, name in (
            (config_path, archival.CONFIG_NAME),
            (weights_path, ARCHIVED_WEIGHT_FILE),
            (os.path.join(folder, VOCABULARY_FOLDER), VOCABULARY_FOLDER),
            (os.path.join(folder, META_NAME), META_NAME),
        ):
            if name == META_NAME and not os.path.exists(path):
                logger.warning("meta file %s does not exist", path)
            else:
                archive.add(os.path.realpath(path), name)  # the target of a link
        metrics_path = os.path.join(folder, METRICS_FILE)
        if os.path.exists(metrics_path) and METRICS_FILE not in (include_in_archive or []):
            archive.add(os.path.realpath(metrics_path), METRICS_FILE)
        for pattern in include_in_archive or []:
            for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
                archive.add(path, os.path.relpath(path, folder))
        _add_elmo_files(archive, elmo_files)
    return target


def _included(config_path: str) -> Optional[List[str]]:
    try:
        with open(config_path, encoding="utf-8") as file:
            return json.load(file).get("include_in_archive")
    except Exception as error:  # no reason to lose the model
        logger.warning("The archive is made without what the config includes: %s", error)
        return None


def _find_elmo_files(config_path: str, made: Path) -> Dict[str, Tuple[str, str]]:
    """
    Return the ELMo files of a config by their places there: the name of each in the config, and its
    path on this machine. There are none if one of them can't be found. Models in other files, such
    as zip archives, are written as the two files to the folder `made`.
    """
    files: Dict[str, Tuple[str, str]] = {}
    two_files: Dict[ElmoFiles, ElmoFiles] = {}
    try:
        with open(config_path, encoding="utf-8") as file:
            config = json.load(file)
        for place, section in elmo_sections(config):
            names = file_names(section)
            found = ElmoFiles.find(*names.values())
            if found not in two_files:
                folder = made / str(len(two_files))
                folder.mkdir()
                two_files[found] = found.as_two_files(folder)
            for (argument, name), path in zip(names.items(), two_files[found]):
                files[f"{place}.{argument}"] = name, os.path.realpath(path)
    except Exception as error:  # of a config or download: no reason to lose the model
        logger.warning("The archive is made without its ELMo files: %s", error)
        return {}
    return files


def _with_archived_files(config_path: str, made: Path) -> str:
    """
    Write the config with the ELMo files of the archive, wherever it is unpacked, to `made`, and
    return its path.
    """
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    for place, section in elmo_sections(config):
        for argument in file_names(section):
            section[argument] = f"{_FOLDER}/{place}.{argument}"
    text = re.sub(rf'(?<=_file": )(?="{_FOLDER}/)', "folder + ", json.dumps(config, indent=4))
    path = made / archival.CONFIG_NAME
    path.write_text(_BESIDE_CONFIG.lstrip() + text, encoding="utf-8")
    return str(path)


def _add_elmo_files(archive: tarfile.TarFile, files: Dict[str, Tuple[str, str]]) -> None:
    if not files:
        return
    index = json.dumps({key: name for key, (name, _) in files.items()}, indent=2).encode()
    member = tarfile.TarInfo(_INDEX)
    member.size = len(index)
    archive.addfile(member, io.BytesIO(index))
    member = tarfile.TarInfo(_FOLDER)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(member)
    members: Dict[str, str] = {}
    for key, (_, path) in files.items():
        name = f"{_FOLDER}/{key}"
        if members.setdefault(path, name) == name:
            archive.add(path, name)
        else:  # an ELMo in several places of the config
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, members[path]
            archive.addfile(member)


def load_model(
    config: Params,
    weights_path: Union[str, "PathLike[str]"],
    serialization_dir: Union[str, "PathLike[str]"],
    cuda_device: int,
) -> Model:
    """
    Call AllenNLP's `_load_model`. In archives of AllenNLP 0.9, whose config has the names of the
    ELMo files as the user wrote them, use the files of the archive, except where overridden.

    # Raises

    `ConfigurationError`
        The index is not a JSON object, or a key of the config is not the name of a file.
    """
    index_path = os.path.join(serialization_dir, _INDEX)
    if os.path.exists(index_path):
        try:
            index = read_json_object(index_path, _INDEX)
        except ValueError as error:
            raise ConfigurationError(
                f"{error}; AllenNLP wrote no such archive: don't use it"
            ) from None
        for place, section in elmo_sections(config.params):
            for argument, name in file_names(section).items():
                key = f"{place}.{argument}"
                if index.get(key) != name:
                    continue
                if os.path.basename(key) != key:
                    raise ConfigurationError(
                        f"'{shown(key, 200)}' in {_INDEX} is not the name of a file in {_FOLDER}; "
                        "AllenNLP wrote no such archive: don't use it"
                    )
                path = os.path.join(serialization_dir, _FOLDER, key)
                if os.path.exists(path):
                    section[argument] = path
    return _load_model(config, weights_path, serialization_dir, cuda_device)
