"""
Faults of AllenNLP 2.10.1 in the files of a training run, whatever the versions of torch and Python:
files that a kill truncates, checkpoints that are lost or not found, and vocabularies' folders.
"""

import errno
import functools
import os
import time
import zipfile
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Iterator, Set, Tuple, Union

from allennlp.common import Params
from allennlp.common.meta import Meta
from allennlp.data import Vocabulary, vocabulary
from allennlp.training.checkpointer import Checkpointer

from allennlp_elmo_plugin.data.vocabulary import find_vocabulary_folder
from allennlp_elmo_plugin.files.locks import open_locked
from allennlp_elmo_plugin.files.whole_file import Staging, remove, sync, sync_folder, whole_file
from allennlp_elmo_plugin.patches.replaced_names import replace_attribute

_VOCABULARY_LOCK = ".lock"  # AllenNLP's name

# AllenNLP's own.
_params_to_file = Params.to_file
_meta_to_file = Meta.to_file
_vocabulary_to_files = Vocabulary.save_to_files
_vocabulary_from_files = Vocabulary.from_files.__func__  # type: ignore[attr-defined]
_maybe_save = Checkpointer.maybe_save_checkpoint
_save = Checkpointer.save_checkpoint


def apply() -> None:
    """
    Replace AllenNLP's functions by the ones below. Applying twice changes nothing.
    """
    replace_attribute(Params, "to_file", _save_params)
    replace_attribute(Meta, "to_file", _save_meta)
    replace_attribute(Vocabulary, "save_to_files", _save_vocabulary)
    replace_attribute(Vocabulary, "from_files", classmethod(_load_vocabulary))
    replace_attribute(vocabulary, "FileLock", _lock_vocabulary)
    replace_attribute(Checkpointer, "_find_all_checkpoints", _find_all_checkpoints)
    replace_attribute(Checkpointer, "_remove_checkpoint", _remove_checkpoint)
    replace_attribute(Checkpointer, "maybe_save_checkpoint", _maybe_save_checkpoint)
    replace_attribute(Checkpointer, "save_checkpoint", _save_checkpoint)


# A recovered run writes its config, its meta data and its vocabulary again. AllenNLP writes over
# those that are there, and a kill leaves truncated ones. Here a file is replaced when the new one
# is complete. While another process is writing it, this one waits.


def _save_params(self: Params, params_file: str, *args: Any, **kwargs: Any) -> None:
    with whole_file(params_file, wait=True) as new:
        _params_to_file(self, new, *args, **kwargs)


def _save_meta(self: Meta, path: Union[str, "PathLike[str]"]) -> None:
    with whole_file(path, wait=True) as new:
        _meta_to_file(self, new)


def _save_vocabulary(self: Vocabulary, directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    with (
        open_locked(os.path.join(directory, _VOCABULARY_LOCK), wait=True),
        Staging(Path(directory, ".partial"), directory) as staging,  # hidden: not a namespace
    ):
        staging.clear()
        new = staging.path / "new"
        _vocabulary_to_files(self, str(new))
        remove(new / _VOCABULARY_LOCK)
        sync(new)
        for name in os.listdir(new):
            os.replace(new / name, os.path.join(directory, name))
        sync_folder(directory)


@functools.wraps(_vocabulary_from_files)
def _load_vocabulary(
    cls: Any, directory: Union[str, "PathLike[str]"], *args: Any, **kwargs: Any
) -> Vocabulary:
    """
    AllenNLP looks for the folder `vocabulary` in an archive, but not in a folder, such as the one
    that `elmo-vocab` wrote.
    """
    return _vocabulary_from_files(cls, find_vocabulary_folder(directory), *args, **kwargs)


@contextmanager
def _lock_vocabulary(path: str, read_only_ok: bool = False) -> Iterator[None]:
    """
    Lock a vocabulary. The package filelock, which AllenNLP uses, waits for ever where the file
    system has no locks, or leaves its file behind when it is killed, depending on its version; and
    without a lock file it can't read from a folder that is not writable.
    """
    try:
        lock = open_locked(path, wait=True)
    except OSError as error:
        if not read_only_ok or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield
        return
    with lock:
        yield


def _find_all_checkpoints(self: Checkpointer) -> Set[Tuple[int, int]]:
    """
    AllenNLP's glob begins with the folder of the run. In one with `[`, `*` or `?` in its name it
    finds nothing: training failed after the first epoch, and a recovered run started from its
    beginning.
    """
    ending = f"_w{self._rank}.th" if self.state_is_sharded else ".th"
    names = [name for name in os.listdir(self._serialization_dir) if name.endswith(ending)]
    return {point for point in map(self._parse_model_state_path, names) if point is not None}


def _remove_checkpoint(
    self: Checkpointer, epochs_completed: int, batches_in_epoch_completed: int
) -> None:
    """
    AllenNLP's pattern also fits every later checkpoint whose number begins with the same digits:
    with that of batch 5 went those of 50 to 59, sometimes all there were.
    """
    point = (epochs_completed, batches_in_epoch_completed)
    for name in os.listdir(self._serialization_dir):
        if point in (self._parse_model_state_path(name), self._parse_training_state_path(name)):
            os.remove(os.path.join(self._serialization_dir, name))


def _maybe_save_checkpoint(self: Checkpointer, *args: Any, **kwargs: Any) -> bool:
    """
    With `save_every_num_seconds`, AllenNLP saves no checkpoint for as long as the clock was set
    back.
    """
    self._last_save_time = min(self._last_save_time, time.time())
    return _maybe_save(self, *args, **kwargs)


def _save_checkpoint(self: Checkpointer, trainer: Any) -> None:
    """
    When `torch.save` is interrupted, as by Ctrl-C, it ends its file with a table of contents, so
    that it looks complete. Remove such files: the checkpoint is that before. One whose files were
    both saved stays, since those before may be removed by then.
    """
    if self._serialization_dir is None:
        return
    before = set(os.listdir(self._serialization_dir))
    try:
        _save(self, trainer)
    except BaseException:
        saved = self._last_save_num_epochs_completed, self._last_save_num_batches_in_epoch_completed
        for name in set(os.listdir(self._serialization_dir)) - before:
            path = os.path.join(self._serialization_dir, name)
            point = self._parse_model_state_path(name) or self._parse_training_state_path(name)
            if point not in (None, saved) and zipfile.is_zipfile(path):
                os.remove(path)
        raise
