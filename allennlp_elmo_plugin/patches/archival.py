"""
AllenNLP's functions that write and load archives, with the ELMo files that a config names inside
the archive, as in AllenNLP 0.9 and in its layout.
"""

import glob
import json
import logging
import os
import re
import tarfile
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from allennlp.common import Params
from allennlp.common.meta import META_NAME
from allennlp.models import Model, archival

from allennlp_elmo_plugin.data.vocabulary import VOCABULARY_FOLDER
from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    METRICS_FILE,
)
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles, elmo_sections, file_names

logger = logging.getLogger(__name__)

# AllenNLP's function, before the plugin replaces it.
_load_model = archival._load_model

# The names of the archived files by their places in the config, and the folder of these files.
_INDEX = "files_to_archive.json"
_FOLDER = "fta"
# The head of an archived config that names them. AllenNLP evaluates every config with jsonnet.
_BESIDE_CONFIG = f"""\
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
    config_path = os.path.join(folder, archival.CONFIG_NAME)
    paths = {
        archival.CONFIG_NAME: config_path,
        ARCHIVED_WEIGHT_FILE: os.path.join(folder, weights),
        VOCABULARY_FOLDER: os.path.join(folder, VOCABULARY_FOLDER),
    }
    for name in (archival.CONFIG_NAME, ARCHIVED_WEIGHT_FILE):
        if not os.path.exists(paths[name]):
            raise RuntimeError(f"file '{paths[name]}' does not exist, unable to archive model")
    for name in (META_NAME, METRICS_FILE):
        if os.path.exists(os.path.join(folder, name)):
            paths[name] = os.path.join(folder, name)
    config: Dict[str, Any] = {}
    try:
        with open(config_path, encoding="utf-8") as file:
            config = json.load(file)
    except (RecursionError, ValueError) as error:  # no reason to lose the model
        logger.warning("The archive is made without its ELMo files: %s: %s", config_path, error)
    if include_in_archive is None:
        # AllenNLP passes it when a training has ended, but not when it was interrupted.
        include_in_archive = config.get("include_in_archive")
    for pattern in include_in_archive or []:
        for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
            paths[os.path.relpath(path, folder)] = path
    target = folder if archive_path is None else os.fspath(archive_path)
    if os.path.isdir(target):
        target = os.path.join(target, ARCHIVE_FILE)
    logger.info("archiving weights and vocabulary to %s", target)
    # All nodes of a distributed training may write to the same folder.
    with (
        whole_file(target, wait=True) as staged,
        tarfile.open(staged, "w:gz", dereference=True) as archive,
        tempfile.TemporaryDirectory() as made,
    ):
        try:
            paths.update(_elmo_files(config, Path(made)))
        except Exception as error:  # of a download, for instance
            logger.warning("The archive is made without its ELMo files: %s", error)
        for name, path in paths.items():
            archive.add(path, name)
    return target


def _elmo_files(config: Dict[str, Any], made: Path) -> Dict[str, str]:
    """
    Return what an archive has in addition, or instead, because of the ELMo files that the config
    names: paths by names in the archive. The folder `made` gets the config, the index, and the two
    files of models in other files, such as zip archives.
    """
    index: Dict[str, str] = {}
    paths: Dict[str, str] = {}
    for place, section in list(elmo_sections(config)):
        names = file_names(section)
        folder = made / str(len(index))
        folder.mkdir()
        files = ElmoFiles.find(*names.values()).as_two_files(folder)
        for (argument, name), path in zip(names.items(), files):
            key = f"{place}.{argument}"
            index[key] = name
            paths[f"{_FOLDER}/{key}"] = path
            section[argument] = f"{_FOLDER}/{key}"
    if index:
        text = re.sub(rf'(?<=_file": )(?="{_FOLDER}/)', "folder + ", json.dumps(config, indent=4))
        for name, content in (
            (archival.CONFIG_NAME, _BESIDE_CONFIG + text),
            (_INDEX, json.dumps(index, indent=2)),
        ):
            paths[name] = str(made / name)
            (made / name).write_text(content, encoding="utf-8")
    return paths


def load_model(
    config: Params,
    weights_path: Union[str, "PathLike[str]"],
    serialization_dir: Union[str, "PathLike[str]"],
    cuda_device: int,
) -> Model:
    """
    Call AllenNLP's `_load_model`. In archives of AllenNLP 0.9, whose config has the names of the
    ELMo files as the user wrote them, use the files of the archive, except where overridden.
    """
    index_path = os.path.join(serialization_dir, _INDEX)
    if os.path.exists(index_path):
        with open(index_path, encoding="utf-8") as file:
            index = json.load(file)
        for place, section in elmo_sections(config.params):
            for argument, name in file_names(section).items():
                key = f"{place}.{argument}"
                path = os.path.join(serialization_dir, _FOLDER, key)
                if index.get(key) == name and os.path.exists(path):
                    section[argument] = path
    return _load_model(config, weights_path, serialization_dir, cuda_device)
