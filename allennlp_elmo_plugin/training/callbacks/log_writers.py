"""
AllenNLP's callbacks for TensorBoard and Weights & Biases, with curves that continue when a run
recovers.
"""

import os
import time
import uuid
from collections import deque
from typing import Any, Dict, Optional

import numpy
import torch
from allennlp.training import GradientDescentTrainer
from allennlp.training.callbacks import TensorBoardCallback, TrainerCallback, WandBCallback
from allennlp.training.callbacks.log_writer import LogWriterCallback
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import histogram, scalar

from allennlp_elmo_plugin.registration import register_anew
from allennlp_elmo_plugin.training.resumable_trainer import ResumableTrainer

# Those of tensorboardX.
_BINS_ABOVE_0 = 1e-12 * 1.1 ** numpy.arange(774)
_BINS = numpy.concatenate([-_BINS_ABOVE_0[::-1], [0.0], _BINS_ABOVE_0])


class _ResumableLogWriter(LogWriterCallback):
    """
    What both have in common: the speed of training is logged, too, and the checkpoints contain the
    moving averages.
    """

    _param_updates: Optional[Dict[str, torch.Tensor]]

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        if is_primary and self._should_log_distributions_next_batch():
            # AllenNLP keeps the parameters before each update that it logs, except the first.
            self._param_updates = {
                name: parameter.detach().cpu().clone()
                for name, parameter in trainer.model.named_parameters()
            }

    def log_batch(self, *args: Any, **kwargs: Any) -> None:
        super().log_batch(*args, **kwargs)
        if isinstance(self.trainer, ResumableTrainer) and self._should_log_this_batch():
            speed = self.trainer.speed()
            if speed:
                self.log_scalars(speed, log_prefix="train")

    def state_dict(self) -> Dict[str, Any]:
        return {
            **super().state_dict(),
            "batch_losses": {
                name: (self._batch_loss_moving_sum[name], list(losses))
                for name, losses in self._batch_loss_moving_items.items()
            },
            "n_rows": self._cumulative_batch_group_size,
        }

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if "batch_losses" not in state_dict:  # of an earlier version
            return
        for name, (total, losses) in state_dict["batch_losses"].items():
            self._batch_loss_moving_sum[name] = total
            self._batch_loss_moving_items[name] = deque(losses)
        self._cumulative_batch_group_size = state_dict["n_rows"]


@register_anew(TrainerCallback, "tensorboard")
class ResumableTensorBoardCallback(_ResumableLogWriter, TensorBoardCallback):
    """
    AllenNLP's callback. When a language model's run recovers, TensorBoard replaces what a killed
    process logged after its last checkpoint, and nothing before the kill is lost. In distributed
    training, only the first process writes.

    It replaces the callback "tensorboard". In AllenNLP's, each process opens a file, which may have
    the same name, and a kill loses up to two minutes.

    # Parameters

    Those of `TensorBoardCallback`.
    """

    def __init__(
        self,
        serialization_dir: str,
        summary_interval: int = 100,
        distribution_interval: Optional[int] = None,
        batch_size_interval: Optional[int] = None,
        should_log_parameter_statistics: bool = False,
        should_log_learning_rate: bool = False,
    ) -> None:
        LogWriterCallback.__init__(
            self,
            serialization_dir,
            summary_interval=summary_interval,
            distribution_interval=distribution_interval,
            batch_size_interval=batch_size_interval,
            should_log_parameter_statistics=should_log_parameter_statistics,
            should_log_learning_rate=should_log_learning_rate,
        )
        self._train_log: Any = None
        self._validation_log: Any = None

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        if not is_primary:
            return
        n_epochs = trainer._start_after_epochs_completed
        n_batches: Optional[int] = trainer._total_batches_completed
        if not n_batches and (n_epochs or trainer._start_after_batches_in_epoch_completed):
            n_batches = None  # AllenNLP, which recovers other models, has not counted them yet.
        # AllenNLP logs batch n as step n + 1, and epochs from step 1.
        first_steps = {"train": n_batches and n_batches + 2, "validation": n_epochs + 1}
        folder = os.path.join(self.serialization_dir, "log")
        self._train_log, self._validation_log = (
            _EventFile(os.path.join(folder, name), None if n_batches is None else step)
            for name, step in first_steps.items()
        )

    def log_batch(self, *args: Any, **kwargs: Any) -> None:
        super().log_batch(*args, **kwargs)
        self._train_log.flush()

    def log_epoch(self, *args: Any, **kwargs: Any) -> None:
        super().log_epoch(*args, **kwargs)
        self._train_log.flush()
        self._validation_log.flush()


@register_anew(TrainerCallback, "wandb")
class ResumableWandBCallback(_ResumableLogWriter, WandBCallback):
    """
    AllenNLP's callback. A recovered run continues under its name, without gaps in the moving
    averages.

    It replaces the callback "wandb", which calls a function that today's wandb lacks.

    # Parameters

    Those of `WandBCallback`.
    """

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        if self._run_id is None:
            self._run_id = uuid.uuid4().hex[:8]  # where AllenNLP calls `wandb.util.generate_id`
        super().on_start(trainer, is_primary, **kwargs)


class _EventFile:
    """
    What AllenNLP's callback uses of tensorboardX's `SummaryWriter`, without a queue: after `flush`
    all events are in the file.

    # Parameters

    folder : `str`
    first_step : `Optional[int]`
        Readers forget events of this step and later ones in the files before.
    """

    def __init__(self, folder: str, first_step: Optional[int]) -> None:
        os.makedirs(folder, exist_ok=True)
        # Its name has the second, and files are read in the order of their names.
        suffix = f".{time.time_ns() % 10**9:09}"
        self._events = EventsWriter(os.path.join(folder, "events"), suffix)
        self._is_flushed = False
        if first_step is not None:
            self._add(first_step, session_log=SessionLog(status=SessionLog.START))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self._add(step, summary=scalar(name, value))

    def add_histogram(self, name: str, values: numpy.ndarray, step: int) -> None:
        values = values[numpy.isfinite(values)]
        if values.size:  # of none, tensorboardX makes an error
            self._add(step, summary=histogram(name, values, _BINS))

    def _add(self, step: int, **content: Any) -> None:
        self._events.write_event(Event(wall_time=time.time(), step=step, **content))
        self._is_flushed = False

    def flush(self) -> None:
        if not self._is_flushed:
            self._events.flush()
            self._is_flushed = True

    def close(self) -> None:
        self._events.close()
