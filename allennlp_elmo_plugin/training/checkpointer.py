"""Checkpoints that are complete or not there, whatever ends the process that saves them."""

import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Set, Tuple, cast

import torch
from allennlp.training.checkpointer import Checkpointer

from allennlp_elmo_plugin.files.whole import LateErrorFile, sync_folder
from allennlp_elmo_plugin.registration import register_anew


@register_anew(Checkpointer, "default")
class WholeCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer, which writes each file under another name first and recovers only from
    a checkpoint that has both files. It replaces the checkpointer "default", also AllenNLP's
    default for the training of a language model.

    # Parameters

    Those of `Checkpointer`.
    """

    def save_checkpoint(self, trainer: Any) -> None:
        state = trainer.get_checkpoint_state()
        if state is None:  # In distributed training, the first process saves.
            return
        values = state.trainer_state
        point = values["epochs_completed"], values["batches_in_epoch_completed"]
        if point not in self._find_all_checkpoints():
            save_whole(values, self._training_state_path(*point))
            save_whole(state.model_state, self._model_state_path(*point))
        # AllenNLP doesn't write a file that is there; it removes old checkpoints.
        super().save_checkpoint(cast(Any, SimpleNamespace(get_checkpoint_state=lambda: state)))

    def _find_all_checkpoints(self) -> Set[Tuple[int, int]]:
        # AllenNLP's glob finds nothing in a folder with `[` in its name.
        names = os.listdir(self._serialization_dir)
        points = {self._parse_model_state_path(name) for name in names}
        return {
            point
            for point in points
            if point is not None
            and os.path.exists(self._model_state_path(*point))
            and os.path.exists(self._training_state_path(*point))
        }

    def _remove_checkpoint(self, epochs_completed: int, batches_in_epoch_completed: int) -> None:
        # With the checkpoint of batch 5, AllenNLP's glob removes those of 50 to 59.
        point = (epochs_completed, batches_in_epoch_completed)
        for name in os.listdir(self._serialization_dir):
            if point in (self._parse_model_state_path(name), self._parse_training_state_path(name)):
                os.remove(os.path.join(self._serialization_dir, name))


def save_whole(state: Any, path: str) -> None:
    """
    Do what `torch.save` does, but write the whole file or none.

    # Raises

    `OSError`
        The disk is full, for instance. The message has the file and says how to continue.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # Not the whole name: the next file replaces what a kill leaves.
    partial = os.path.join(folder, f".{name.split('_')[0]}.partial")
    try:
        with LateErrorFile(partial) as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync_folder(folder)
    except OSError as error:
        raise OSError(
            f"Can't write {path}: {error.strerror}. Make room, and continue with "
            "`allennlp train --recover`"
        ) from error
    finally:
        with suppress(FileNotFoundError):
            os.remove(partial)
