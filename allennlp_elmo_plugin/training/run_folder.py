"""
The folder of a training run: one process at a time works in it, and a run is recovered only with
the vocabulary that it has been trained with.
"""

import functools
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Iterable, List, Mapping, Optional, Set, Union

from allennlp.commands import train
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models.archival import CONFIG_NAME
from allennlp.training import util as training_util

from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE, VOCABULARY_FOLDER
from allennlp_elmo_plugin.files.locks import LOCK_NAME, locked_folder
from allennlp_elmo_plugin.training.workers import workers_ended

# AllenNLP's own, which the plugin replaces under their names.
_train_model = train.train_model
_create_serialization_dir = training_util.create_serialization_dir

_TRAINED = re.compile(r"(model_state_.*|best)\.th")


@functools.wraps(_train_model)
def train_model(
    params: Params,
    serialization_dir: Union[str, "os.PathLike[str]"],
    recover: bool = False,
    force: bool = False,
    node_rank: int = 0,
    include_package: Optional[List[str]] = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """
    AllenNLP's function of this name, which also locks the folder. Before a run is recovered, it
    checks that the run has the vocabulary that `params` name: AllenNLP would replace it, so that
    the rows of embeddings and softmax silently belong to other words. If it refuses, it has written
    nothing to the folder except its lock; if a language model fails before it has saved any
    weights, nothing else is left either.

    # Raises

    `ConfigurationError`
        Another process is training in the folder, or the run has another vocabulary.
    """
    # The processes of distributed training import plugins anew, and may not find this one.
    packages = [*(include_package or []), "allennlp_elmo_plugin.registration"]
    folder = Path(serialization_dir)
    names = _names(folder)
    # A run that was killed before it wrote anything left nothing but its lock.
    recover = recover and (bool(names) or not (folder / LOCK_NAME).exists())
    refusal = ConfigurationError(
        f"{folder}: another process is training in this folder; wait for its end, or choose "
        "another folder. In distributed training each machine needs a folder of its own"
    )
    refused_by_allennlp = (
        (recover and force)
        or (recover and CONFIG_NAME not in names)
        or (names and not recover and not force)
    )
    if refused_by_allennlp:
        # AllenNLP would advise to recover a run that goes on.
        has_lock = (folder / LOCK_NAME).exists()
        with locked_folder(folder, refusal) if has_lock else nullcontext():
            return _train_model(
                params, serialization_dir, recover, force, node_rank, packages, *args, **kwargs
            )
    is_ours = is_language_model(params.params)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder} can't be made ({error.strerror}); choose another one"
        ) from error
    with locked_folder(folder, refusal):
        if force:
            _remove_contents(folder)
        if recover:
            _check_vocabulary(params, folder)
        try:
            with workers_ended():  # before the lock is released
                return _train_model(
                    params, serialization_dir, recover, False, node_rank, packages, *args, **kwargs
                )
        except BaseException:
            if is_ours and not recover and not is_trained(folder):
                _remove_contents(folder)  # The same command can be run again.
            raise


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Return whether a config trains a language model with this package."""

    def type_of(section: str) -> Any:
        value = config.get(section)
        return value.get("type") if isinstance(value, Mapping) else value

    is_model = type_of("model") == "bidirectional_lm"
    return is_model or type_of("dataset_reader") == "truncated_bptt_lm"


def create_serialization_dir(
    params: Params,
    serialization_dir: Union[str, "os.PathLike[str]"],
    recover: bool,
    force: bool,
) -> None:
    """AllenNLP's function of this name, for which a folder with nothing but a lock is new."""
    folder = Path(serialization_dir)
    if recover or _names(folder) or not (folder / LOCK_NAME).exists():
        _create_serialization_dir(params, serialization_dir, recover, force)


def is_trained(folder: Union[str, "os.PathLike[str]"]) -> bool:
    """Return whether the run in a folder has saved weights to go on with."""
    return os.path.isdir(folder) and _has_weights(os.listdir(folder))


def _has_weights(names: Iterable[str]) -> bool:
    return any(map(_TRAINED.fullmatch, names))


def version_of_config(folder: Path) -> Any:
    """
    Return what changes when a run begins in a folder, or is continued, and so writes its config.
    """
    try:
        state = os.stat(folder / CONFIG_NAME)
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _names(folder: Path) -> Set[str]:
    """List a folder; if it has its lock, without hidden files, which a killed run may leave."""
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    if LOCK_NAME in names:
        names = {name for name in names if not name.startswith(".")}
    return names


def _remove_contents(folder: Path) -> None:
    """Remove everything but the lock."""
    # The file that every run has goes first: after a kill nobody can recover the rest.
    for path in sorted(folder.iterdir(), key=lambda path: path.name != CONFIG_NAME):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK_NAME:
            path.unlink()


def _check_vocabulary(params: Params, folder: Path) -> None:
    """`check_vocabulary_of_run` for the vocabulary that a configuration reads from files."""
    section = params.duplicate().pop("vocabulary", None)
    if (
        isinstance(section, Params)  # A string, a type alone, reads no files.
        and section.get("type") in ("from_files", "extend")
        and _has_vocabulary(folder)
    ):
        vocab = Vocabulary.from_params(section, instances=[])
        # Distributed training reads the folder's vocabulary, even if that is incomplete.
        check_vocabulary_of_run(vocab, folder, "distributed" in params)


def check_vocabulary_of_run(
    vocab: Vocabulary, folder: Union[str, "os.PathLike[str]"], before_training: bool = False
) -> None:
    """
    Refuse the vocabulary of a language model unless it is the one that the run in a folder has been
    trained with. A run without any weights counts only `before_training`.
    """
    if not _has_vocabulary(folder):
        return
    if not before_training and not is_trained(folder):
        return
    path = os.path.join(folder, VOCABULARY_FOLDER)
    trained = Vocabulary.from_files(path, vocab._padding_token, vocab._oov_token)
    before, now = (each.get_index_to_token_vocabulary(LM_NAMESPACE) for each in (trained, vocab))
    if before == now:
        return
    index = next(index for index in range(len(before) + 1) if before.get(index) != now.get(index))
    words = [f"{each[index]!r}" if index in each else "none" for each in (before, now)]
    raise ConfigurationError(
        f"{folder}: the run was trained with another vocabulary than the configuration's: "
        f"{len(before)} words against {len(now)}, and word {index} is {words[0]} in {path}, but "
        f"{words[1]} in the configuration's. Set vocabulary.directory to the vocabulary of the run "
        "(a copy of that folder), or start a new run in another folder"
    )


def _has_vocabulary(folder: Union[str, "os.PathLike[str]"]) -> bool:
    return os.path.exists(os.path.join(folder, VOCABULARY_FOLDER, f"{LM_NAMESPACE}.txt"))
