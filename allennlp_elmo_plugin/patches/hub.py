"""
The upload of `allennlp push-to-hf`. AllenNLP calls the client of the Hugging Face Hub in a way that
its versions since 2022 refuse, needs git with LFS, and leaves out files that a model needs.
"""

import os
import shutil
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, List, Optional, Union

import huggingface_hub
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import archival

from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVE_FILE,
    CARD_FILE,
    CONFIG_FILE,
    METRICS_FILE,
)
from allennlp_elmo_plugin.models.model_card import Training, hub_card
from allennlp_elmo_plugin.progress import say

_LOGS = "log"  # those of TensorBoard


def push_to_hf(
    repo_name: str,
    serialization_dir: Optional[Union[str, "PathLike[str]"]] = None,
    archive_path: Optional[Union[str, "PathLike[str]"]] = None,
    organization: Optional[str] = None,
    commit_message: str = "Update repository",
    local_repo_path: Union[str, "PathLike[str]"] = "hub",
    use_auth_token: Union[bool, str] = True,
) -> str:
    """
    Prepare the files of a trained model in the folder `local_repo_path`/`repo_name`, upload them to
    the Hugging Face Hub, and return the address of the repository, which is made if it is missing.
    AllenNLP loads the model by the name `hf://ORGANIZATION/REPO_NAME`.

    The files are those of the archive and, with `serialization_dir`, the metrics and the logs of
    TensorBoard. A model card is added unless the repository or the folder has one.

    # Parameters

    Those of AllenNLP's function of this name.

    # Raises

    `ConfigurationError`
        There is no model, or nobody is logged in.
    """
    folder = Path(local_repo_path, repo_name)
    if serialization_dir is not None:
        run = Path(serialization_dir)
        _copy_run(run, folder)
    elif archive_path is not None:
        _copy_archive(archive_path, folder)
    else:
        raise ConfigurationError("Give the folder of a run (-s) or an archive (-a) to push")
    has_new_card = not (folder / CARD_FILE).exists()
    name = repo_name if organization is None else f"{organization}/{repo_name}"
    if has_new_card:
        card = hub_card(name, Training.of(folder, repo_name))
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
    say(f"Prepared in {folder}: {', '.join(sorted(os.listdir(folder)))}")

    token: Any = use_auth_token
    if not isinstance(token, str):
        token = huggingface_hub.HfFolder.get_token()
    if token is None:
        raise ConfigurationError(
            f"{folder} is ready, but nobody is logged in to the Hugging Face Hub: run "
            "`huggingface-cli login`, then this command again"
        )
    api: Any = huggingface_hub.HfApi()
    address = str(api.create_repo(repo_id=name, token=token, exist_ok=True))
    repository = "/".join(address.rstrip("/").split("/")[-2:])
    left_out: List[str] = []
    if has_new_card and CARD_FILE in api.list_repo_files(repository, token=token):
        left_out = [CARD_FILE]
    api.upload_folder(
        repo_id=repository,
        folder_path=str(folder),
        commit_message=commit_message,
        token=token,
        ignore_patterns=left_out,
    )
    print(f"The model is at {address}")
    return address


def _copy_run(run: Path, folder: Path) -> None:
    archive, best = run / ARCHIVE_FILE, run / "best.th"
    # After an interruption and a recovery, the weights may be newer than the archive.
    is_older = best.exists() and archive.exists() and best.stat().st_mtime > archive.stat().st_mtime
    if archive.exists() and not is_older:
        _copy_archive(archive, folder)
    else:
        if not best.exists():
            raise ConfigurationError(
                f"{run} has neither {ARCHIVE_FILE} nor best.th: give the folder of a training run "
                "that has finished an epoch"
            )
        with tempfile.TemporaryDirectory() as made:
            config = Params.from_file(str(run / CONFIG_FILE)).as_dict(quiet=True)
            included = config.get("include_in_archive")
            _copy_archive(archival.archive_model(run, "best.th", made, included), folder)
    for name in (METRICS_FILE, _LOGS):
        _copy(run / name, folder / name)


def _copy_archive(path: Union[str, "PathLike[str]"], folder: Path) -> None:
    if not os.path.isfile(path):
        raise ConfigurationError(f"There is no archive {os.fspath(path)} to push")
    with archival.extracted_archive(path) as unpacked:
        folder.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(unpacked):
            _copy(Path(unpacked, name), folder / name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or folder, if it is there, in place of an earlier copy."""
    if source.is_dir():
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copyfile(source, target)
