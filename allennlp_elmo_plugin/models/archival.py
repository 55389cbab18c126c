import json
import logging
import os
import shutil
from os import PathLike
from typing import Dict, List, Optional, Union

from allennlp.common import Params
from allennlp.models import Model, archival

from allennlp_elmo_plugin.common.elmo_files import ElmoFiles, elmo_sections, file_names

logger = logging.getLogger(__name__)

# AllenNLP's own, whatever the plugin makes of their names.
_archive_model = archival.archive_model
_load_model = archival._load_model

# The layout of AllenNLP 0.9: the names of the archived files by their places in the config.
_INDEX = "files_to_archive.json"
_FOLDER = "fta"


def archive_model(
    serialization_dir: Union[str, "PathLike[str]"],
    weights: str = archival._DEFAULT_WEIGHTS,
    archive_path: Union[str, "PathLike[str]"] = None,  # type: ignore[assignment]
    include_in_archive: Optional[List[str]] = None,
) -> str:
    """
    AllenNLP's function of this name, with the ELMo files that the config names in the archive, so
    that it loads where they are not: as AllenNLP 0.9 had it, and in its layout. Files that cannot
    be had are left out with a warning. AllenNLP without this package loads such an archive too, but
    wants the files where the config says.
    """
    folder = os.path.join(serialization_dir, _FOLDER)
    index_path = os.path.join(serialization_dir, _INDEX)
    made: List[str] = []
    try:
        try:
            index = _collect(os.path.join(serialization_dir, archival.CONFIG_NAME), folder, made)
            if index:
                made.append(index_path)
                with open(index_path, "w", encoding="utf-8") as file:
                    json.dump(index, file, indent=2)
                include_in_archive = [*(include_in_archive or []), _INDEX, _FOLDER]
        except Exception as error:  # of a config, download or disk: no reason to lose the model
            logger.warning("The archive is made without its ELMo files: %s", error)
        return _archive_model(serialization_dir, weights, archive_path, include_in_archive)
    finally:
        for path in made:
            if os.path.exists(path):
                os.remove(path)
        if made and os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)


def _collect(config_path: str, folder: str, made: List[str]) -> Dict[str, str]:
    """
    Gathers the ELMo files of a config in `folder`, adds their paths to `made`, and gives their
    names in the config by their places there.
    """
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    index = {}
    for place, section in elmo_sections(config):
        names = file_names(section)
        for (argument, name), path in zip(names.items(), ElmoFiles.find(*names.values())):
            key = f"{place}.{argument}"
            copy = os.path.join(folder, key)
            os.makedirs(folder, exist_ok=True)
            if os.path.exists(copy):
                os.remove(copy)
            made.append(copy)
            try:
                os.link(os.path.realpath(path), copy)
            except OSError:
                shutil.copyfile(path, copy)
            index[key] = name
    return index


def load_model(
    config: Params,
    weights_path: Union[str, "PathLike[str]"],
    serialization_dir: Union[str, "PathLike[str]"],
    cuda_device: int,
) -> Model:
    """
    AllenNLP's `_load_model`, with the ELMo files of the archive, also of one made by AllenNLP 0.9,
    in the place of those in the config, but for those that the user has overridden.
    """
    index_path = os.path.join(serialization_dir, _INDEX)
    if os.path.exists(index_path):
        with open(index_path, encoding="utf-8") as file:
            index = json.load(file)
        for place, section in elmo_sections(config.params):
            for argument, name in file_names(section).items():
                path = os.path.join(serialization_dir, _FOLDER, f"{place}.{argument}")
                if index.get(f"{place}.{argument}") == name and os.path.exists(path):
                    section[argument] = path
    return _load_model(config, weights_path, serialization_dir, cuda_device)
