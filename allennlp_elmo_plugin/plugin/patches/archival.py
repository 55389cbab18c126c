"""
AllenNLP's function that writes archives, with the ELMo files that a config names inside the
archive, as in AllenNLP 0.9 and in its layout.
"""

import json
import logging
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

from allennlp.common.meta import META_NAME
from allennlp.models import archival

from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.files.whole import whole_file
from allennlp_elmo_plugin.pretrained.file_names import (
    ARCHIVE_FILE,
    ARCHIVED_WEIGHT_FILE,
    METRICS_FILE,
    OPTIONS_FILE,
    WEIGHT_FILE,
)
from allennlp_elmo_plugin.pretrained.find import (
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
# The head of an archived config that names them. AllenNLP evaluates every config with jsonnet.
_BESIDE_CONFIG = f"""\
local config = std.thisFile;
local folder = std.substr(config, 0, std.length(config) - {len(archival.CONFIG_NAME)});
"""


def archive_model(
    serialization_dir: str | PathLike[str],
    weights: str = archival._DEFAULT_WEIGHTS,
    archive_path: str | PathLike[str] = None,  # type: ignore[assignment]
    include_in_archive: list[str] | None = None,
) -> str:
    """
    Write the archive that AllenNLP's function of this name writes, whole or not at all, with the
    metrics of the run, for the model card of `elmo-export`, and the ELMo files that the config
    names. The archived config names these, so that the archive loads anywhere, also with AllenNLP
    alone. If they can't be found, they are left out with a warning.
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


def _elmo_files(config: dict[str, Any], made: Path, opened: ExitStack) -> dict[str, Path]:
    """
    Return what an archive has in addition, or instead, because of the ELMo files that the config
    names: paths by names in the archive, which exist until `opened` is closed. The folder `made`
    gets the config, the index, and the two files of a model in other files.
    """
    index: dict[str, str] = {}
    paths: dict[str, Path] = {}
    for place, section in list(_elmo_sections(config)):
        names = {
            "options_file": section.get("options_file", DEFAULT_OPTIONS_FILE),
            "weight_file": section.get("weight_file", DEFAULT_WEIGHT_FILE),
        }
        files = opened.enter_context(find_model(*names.values()))
        options, weights = str(files.options), str(files.weights)
        if not files.is_pair:
            bilm = ElmoBiLm(*names.values())
            folder = made / str(len(index))
            folder.mkdir()
            options, weights = str(folder / OPTIONS_FILE), str(folder / WEIGHT_FILE)
            bilm.options.write(options)
            write_weights(weights, bilm)
        for (argument, name), path in zip(names.items(), (options, weights)):
            key = f"{place}.{argument}"
            index[key] = name
            paths[f"{_FOLDER}/{key}"] = Path(path)
            section[argument] = f"{_FOLDER}/{key}"
    if index:
        text = re.sub(rf'(?<=_file": )(?="{_FOLDER}/)', "folder + ", json.dumps(config, indent=4))
        for name, content in (
            (archival.CONFIG_NAME, _BESIDE_CONFIG + text),
            (_INDEX, json.dumps(index, indent=2)),
        ):
            paths[name] = made / name
            paths[name].write_text(content, encoding="utf-8")
    return paths


def _elmo_sections(section: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """
    Yield the sections of a config with arguments for ELMo files, each with its place: the keys that
    lead there, joined by dots.
    """
    items: Any = section.items() if isinstance(section, dict) else ()
    if isinstance(section, dict):
        is_elmo = section.get("type") == "elmo_token_embedder"
        # Sections of other types may have an `options_file` alone, as those of language models.
        takes_files = is_elmo or "type" not in section or "weight_file" in section
        default = DEFAULT_OPTIONS_FILE if is_elmo else None
        if takes_files and section.get("options_file", default) is not None:
            yield place, section
    elif isinstance(section, list):
        items = enumerate(section)
    for key, value in items:
        yield from _elmo_sections(value, f"{place}.{key}" if place else str(key))
