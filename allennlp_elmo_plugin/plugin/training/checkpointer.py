"""Checkpoints that are complete or absent, even after a kill during saving."""

import os
import signal
import time
from types import SimpleNamespace
from typing import Any, Optional, Union, cast

import torch
import torch.distributed as dist
from allennlp.common.util import is_distributed
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.exits import Terminated
from allennlp_elmo_plugin.files.atomic import LateErrorFile, sync, sync_folder
from allennlp_elmo_plugin.files.tensors import read_checkpoint
from allennlp_elmo_plugin.plugin.registration import configuration_errors, override_registered


@override_registered(Checkpointer, "default")
class WholeCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer "default". It writes both files of a checkpoint under other names,
    renames them when they are complete, and recovers only from a checkpoint that has both. For
    language models, `save_every_num_seconds` is 600 by default and works in distributed training.
    """

    def __init__(
        self,
        serialization_dir: Union[str, "os.PathLike[str]"],
        *,
        save_every_num_seconds: Optional[float] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(serialization_dir, **kwargs)
        self.seconds = save_every_num_seconds
        self.signals: list[int] = []
        """The signals that this process got: the next batch ends training, with a checkpoint."""

    def maybe_save_checkpoint(self, trainer: Any, n_epochs: int, n_batches: int) -> bool:
        is_due = self.seconds is not None and time.time() - self._last_save_time >= self.seconds
        ends = bool(self.signals)
        if is_distributed() and self.seconds is not None:
            # All processes save and end after the same batch.
            flags = torch.tensor([is_due, ends], dtype=torch.int, device=trainer.cuda_device)
            dist.all_reduce(flags)
            is_due, ends = map(bool, flags.tolist())
        is_saved = super().maybe_save_checkpoint(trainer, n_epochs, n_batches)
        if not is_saved and (is_due or ends):
            self.save_checkpoint(trainer)
            is_saved = True
        if ends and n_batches:  # After an epoch, AllenNLP first has to save the best weights.
            raise Terminated if signal.SIGTERM in self.signals else KeyboardInterrupt
        return is_saved

    def save_checkpoint(self, trainer: Any) -> None:
        state = trainer.get_checkpoint_state()
        if state is None:  # In distributed training, the first process of a machine saves.
            self._last_save_time = time.time()
            self._last_save_num_epochs_completed = trainer._epochs_completed
            self._last_save_num_batches_in_epoch_completed = trainer._batches_in_epoch_completed
            return
        if not self.state_is_sharded:
            self._rank = 0  # AllenNLP would remove old checkpoints on the first machine only.
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
                    how = "continue with `allennlp train --recover`"
                    hint = (
                        f"make room, and {how if self._find_all_checkpoints() else 'start again'}"
                    )
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
