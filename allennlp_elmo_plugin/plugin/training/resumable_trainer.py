"""The trainer whose runs recover exactly after a kill."""

import functools
import hashlib
import inspect
import logging
import os
import re
from typing import Any, Optional

import torch
import torch.distributed as dist
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer, Trainer
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.exits import noted_signals
from allennlp_elmo_plugin.files.atomic import remove
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.plugin.training.checkpointer import WholeCheckpointer
from allennlp_elmo_plugin.plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    SparseDdpWrappedModel,
)
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.training.memory import keep_memory_of_training
from allennlp_elmo_plugin.training.random_state import get_random_state, set_random_state

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_CHECKPOINTS = 600.0


@override_registered(Trainer, "gradient_descent", constructor="from_partial_objects")
class ResumableTrainer(GradientDescentTrainer):
    """
    AllenNLP's trainer, which resumes the training of a language model exactly. A run that was
    killed at any point and continued by `allennlp train --recover` has the losses and metrics of
    one that was never stopped, to the bit where computation is deterministic (one thread on a CPU).
    Other models are trained by AllenNLP's code alone.

    To AllenNLP's checkpoints it adds, for each process, the model's LSTM states and metrics, the
    position in the text and the states of the random number generators. If a run was killed after
    its last epoch, `--recover` writes the missing metrics and archive. The first SIGINT or SIGTERM
    saves a checkpoint after the current batch and ends training.
    """

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        self.model: Any
        self.data_loader: Any
        self._serialization_dir: str
        self._progress: Optional[_Progress] = None
        self._recovered: Optional[dict[str, Any]] = None
        if not isinstance(model, BidirectionalLanguageModel):
            super().__init__(model, *args, **kwargs)
            return
        _check_settings(kwargs)
        # A recovered run would keep the hooks of AllenNLP's checks, which take memory.
        kwargs["run_confidence_checks"] = False
        super().__init__(model, *args, **kwargs)
        known = [*model.get_metrics(), "loss", "reg_loss"]
        for _, name in self._metric_tracker.tracked_metrics:
            # AllenNLP finds a wrong name only after the first epoch.
            if self._validation_data_loader is not None and name not in known:
                raise ConfigurationError(
                    f"trainer: validation_metric has {name!r}, but the model's metrics are "
                    + ", ".join(known)
                )
        # `_rank` is the process's number on its machine.
        self._global_rank = dist.get_rank() if self._distributed else 0
        if self._distributed:
            # With the config's seed, all processes have made the same initial weights.
            torch.manual_seed(torch.initial_seed() + self._global_rank)
        if isinstance(self._checkpointer, WholeCheckpointer):
            self._checkpointer.seconds = self._checkpointer.seconds or _SECONDS_BETWEEN_CHECKPOINTS
        self._progress = _Progress(self._serialization_dir)
        self._callbacks.insert(0, self._progress)

    @classmethod
    @functools.wraps(GradientDescentTrainer.from_partial_objects.__func__)  # type: ignore[attr-defined]
    def from_partial_objects(  # type: ignore[override]
        cls, model: Any, serialization_dir: str, data_loader: Any, **kwargs: Any
    ) -> Trainer:
        if isinstance(model, BidirectionalLanguageModel):
            # AllenNLP freezes parameters after making `DistributedDataParallel`, which would then
            # wait for their gradients.
            for name, parameter in model.named_parameters():
                if any(re.search(regex, name) for regex in kwargs.get("no_grad") or []):
                    parameter.requires_grad_(False)
            keep_memory_of_training()
            if kwargs.get("distributed"):
                _check_same_data(model, data_loader, kwargs.get("validation_data_loader"))
                if kwargs.get("ddp_accelerator") is None:
                    device = kwargs["cuda_device"]
                    kwargs["ddp_accelerator"] = SparseDdpAccelerator(cuda_device=device)
            kwargs.setdefault("checkpointer", Lazy(WholeCheckpointer))
        return super().from_partial_objects(model, serialization_dir, data_loader, **kwargs)

    def rescale_gradients(self) -> Optional[float]:
        if isinstance(self._ddp_wrapped_model, SparseDdpWrappedModel):
            self._ddp_wrapped_model.average_sparse_gradients()
        return super().rescale_gradients()

    def get_checkpoint_state(self) -> Optional[TrainerCheckpoint]:
        if self._progress is not None:
            loaders: Any = self.data_loader, self._validation_data_loader
            state = {
                "total_batches": self._total_batches_completed,
                "model": self.model.training_state(),
                "data_loaders": [None if each is None else each.state_dict() for each in loaders],
                "random": get_random_state(self.cuda_device),
            }
            self._progress.processes = [state] * self._world_size
            if self._distributed:
                dist.all_gather_object(self._progress.processes, state)
            # `torch.load` refuses classes other than torch's and Python's own.
            self._metric_tracker.best_epoch_metrics = dict(self._metric_tracker.best_epoch_metrics)
        return super().get_checkpoint_state()

    def _maybe_restore_checkpoint(self) -> None:
        scheduler: Any = self._learning_rate_scheduler
        end = getattr(scheduler, "total_steps", None)
        average = self._moving_average
        own = {} if average is None else dict(vars(average))
        try:
            super()._maybe_restore_checkpoint()
        except RuntimeError as error:
            sizes = re.search(r"for softmax.bias: .*\[(\d+)\].*\[(\d+)\]", str(error))
            if sizes is None:
                raise
            raise ConfigurationError(
                f"{self._serialization_dir}: the vocabulary has {sizes[2]} words, but the "
                f"checkpoint is of one with {sizes[1]}; put the vocabulary of this run back"
            ) from error
        if self._progress is None or not self._progress.processes:
            return
        if end is not None:
            scheduler.total_steps = end  # `num_epochs` may have been raised.
        if average is not None:
            saved = average._shadows
            vars(average).update(own)  # AllenNLP would average copies of the parameters.
            for name, shadow in average._shadows.items():
                shadow.copy_(saved[name])
        n_processes = len(self._progress.processes)
        if n_processes != self._world_size:
            raise ConfigurationError(
                f"The checkpoint in {self._serialization_dir} is of {n_processes} processes, but "
                f"this run has {self._world_size}"
            )
        self._recovered = state = self._progress.processes[self._global_rank]
        self._total_batches_completed = state["total_batches"]  # Callbacks read it in `on_start`.
        self.model.load_training_state(state["model"])
        loaders: Any = self.data_loader, self._validation_data_loader
        for loader, position in zip(loaders, state["data_loaders"]):
            if position is not None:
                loader.load_state_dict(position)
        # AllenNLP stores the path of best.th, and the folder may have been moved. It writes best.th
        # after the checkpoint, so a kill in between leaves an older one.
        best = os.path.join(self._serialization_dir, "best.th")
        is_after_epoch = self._start_after_batches_in_epoch_completed == 0
        is_best = is_after_epoch and self._metric_tracker.is_best_so_far()
        if is_best or self._best_model_filename is not None:
            self._best_model_filename = best
        if is_best and self._primary:
            remove(best)  # In case it is a link to a checkpoint
            if average is not None:
                average.assign_average_value()
            self._save_model_state(best)
            if average is not None:
                average.restore()

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        if self._progress is None:
            return super()._train_epoch(epoch)
        if self._epochs_completed < self._start_after_epochs_completed:
            return {}
        if self._recovered is not None:
            self._batches_in_epoch_completed = self._start_after_batches_in_epoch_completed
            # The data loader starts from there, so AllenNLP must skip nothing.
            self._start_after_batches_in_epoch_completed = 0
            set_random_state(self._recovered["random"], self.cuda_device)
            self._recovered = None
        metrics = super()._train_epoch(epoch)
        penalty = self.model.get_regularization_penalty()
        if penalty is not None:
            # AllenNLP's mean has only the batches since the process started.
            metrics["reg_loss"] = penalty.item()
        return metrics

    def _try_train(self) -> tuple[dict[str, Any], int]:
        if self._progress is None:
            return super()._try_train()
        n_completed = self._start_after_epochs_completed
        if (
            self._recovered is not None
            and self._start_after_batches_in_epoch_completed == 0
            and (n_completed >= self._num_epochs or self._metric_tracker.should_stop_early())
        ):
            logger.info("The run in %s had ended: nothing is trained", self._serialization_dir)
            self._num_epochs = n_completed
            super()._try_train()  # It skips all epochs and loads the best weights.
            return self._progress.metrics, n_completed - 1
        signals: list[int] = getattr(self._checkpointer, "signals", [])
        try:
            with noted_signals(signals, is_worker=self._distributed):
                return super()._try_train()
        except (RuntimeError, ValueError) as error:
            if "nan loss" in str(error):
                raise ConfigurationError(
                    "the loss became NaN: lower the learning rate, and start again"
                ) from error
            if not re.search(r"(sparse|dense) gradients|add\(sparse", str(error)):
                raise
            raise ConfigurationError(
                f"trainer: {type(self.optimizer).__name__} can't train a sampled softmax or a "
                'token embedding, with sparse gradients: use "dense_sparse_adam" or "adagrad", '
                "without weight_decay"
            ) from error


class _Progress(TrainerCallback):
    """Keeps the states of all processes and the last epoch's metrics in checkpoints."""

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self.processes: list[Any] = []
        self.metrics: dict[str, Any] = {}

    def on_epoch(self, trainer: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        self.metrics = metrics  # Callbacks after this one may add to them.

    def state_dict(self) -> dict[str, Any]:
        return {"processes": self.processes, "metrics": dict(self.metrics)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


def _check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings that AllenNLP would ignore, or apply wrongly to a language model."""
    known = inspect.signature(GradientDescentTrainer.__init__).parameters
    unknown = sorted(settings.keys() - known - {"run_sanity_checks"})
    if unknown:
        raise ConfigurationError(f"trainer: there is no setting {', '.join(unknown)}")
    if settings.get("use_amp"):
        raise ConfigurationError(
            "use_amp is not for language models: AllenNLP forgets to divide their gradients by "
            'num_gradient_accumulation_steps. Leave it out, and set "precision": "bfloat16" in '
            "the model"
        )


def _check_same_data(model: Model, *loaders: Any) -> None:
    """Raise a `ConfigurationError` in all processes unless they have the same words and texts."""
    words = model.vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
    digests = [[*each.state_dict()["digest"].values()] for each in loaders if each is not None]
    data = hashlib.sha256("\n".join(words.values()).encode()).hexdigest(), digests
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    ranks = [str(rank) for rank, other in enumerate(gathered) if other != gathered[0]]
    if ranks:
        raise ConfigurationError(
            f"The vocabulary or the text of rank {', '.join(ranks)} differs from that of rank 0: "
            "copy the files of one machine to the others"
        )
