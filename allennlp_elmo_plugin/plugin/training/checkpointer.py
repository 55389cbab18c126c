"""Checkpoints that are complete or absent, even after a kill during saving."""

import os
from types import SimpleNamespace
from typing import Any, Optional, cast

import torch
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.files.atomic import LateErrorFile, sync, sync_folder
from allennlp_elmo_plugin.files.tensors import read_checkpoint
from allennlp_elmo_plugin.plugin.registration import configuration_errors, override_registered


@override_registered(Checkpointer, "default")
class WholeCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer "default". It writes both files of a checkpoint under other names,
    renames them when they are complete, and recovers only from a checkpoint that has both.
    """

    def save_checkpoint(self, trainer: Any) -> None:
        state = trainer.get_checkpoint_state()
        if state is None:  # In distributed training, the first process saves.
            return
        values = state.trainer_state
        point = values["epochs_completed"], values["batches_in_epoch_completed"]
        if point not in self._find_all_checkpoints():
            partials = [os.path.join(self._serialization_dir, f".{n}.partial") for n in range(2)]
            paths = self._training_state_path(*point), self._model_state_path(*point)
            for content, partial, path in zip((values, state.model_state), partials, paths):
                try:
                    with LateErrorFile(partial) as file:
                        torch.save(content, file)
                    sync(partial)
                except OSError as error:
                    hint = "make room, and continue with `allennlp train --recover`"
                    raise OSError(error.errno, f"{error.strerror}; {hint}", path) from error
            for partial, path in zip(partials, paths):
                os.replace(partial, path)
            sync_folder(self._serialization_dir)
        # As the files exist, AllenNLP doesn't write them, and only removes old checkpoints.
        super().save_checkpoint(cast(Any, SimpleNamespace(get_checkpoint_state=lambda: state)))

    def load_checkpoint(self) -> Optional[TrainerCheckpoint]:
        paths = self.find_latest_checkpoint()
        advice = "remove it and repeat the command, which then uses the checkpoint before"
        with configuration_errors():
            return paths and TrainerCheckpoint(*(read_checkpoint(path, advice) for path in paths))

    def _find_all_checkpoints(self) -> set[tuple[int, int]]:
        names = os.listdir(self._serialization_dir)
        points = {self._parse_model_state_path(name) for name in names}
        return {p for p in points if p and os.path.exists(self._training_state_path(*p))}

    def _remove_checkpoint(self, *point: int) -> None:
        # With batch 5, AllenNLP would remove batches 50 to 59.
        os.remove(self._model_state_path(*point))
        os.remove(self._training_state_path(*point))
