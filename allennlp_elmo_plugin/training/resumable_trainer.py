"""The trainer whose runs recover exactly after a kill."""

import functools
import hashlib
import inspect
import logging
import os
import re
import time
from contextlib import nullcontext
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import GradientDescentTrainer, Trainer
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.bilm.kernels.memory import keep_memory_of_training
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.files.json_file import did_you_mean
from allennlp_elmo_plugin.registration import register_anew
from allennlp_elmo_plugin.training.checkpointer import WholeCheckpointer, save_whole
from allennlp_elmo_plugin.training.random_state import get_random_state, set_random_state
from allennlp_elmo_plugin.training.saving import SavingCallback
from allennlp_elmo_plugin.training.sparse_ddp_accelerator import (
    SparseDdpAccelerator,
    SparseDdpWrappedModel,
    check_same,
)

logger = logging.getLogger(__name__)


@register_anew(Trainer, "gradient_descent", constructor="from_partial_objects")
class ResumableTrainer(GradientDescentTrainer):
    """
    AllenNLP's trainer, whose runs recover exactly: a run that is killed at any point and recovered
    by `allennlp train --recover` has the losses and metrics of a run that was never stopped, from
    its last checkpoint on. Where computation is deterministic (one thread on a CPU), they are equal
    to the bit.

    It replaces the trainer "gradient_descent", AllenNLP's default, so that no configuration can
    forget it. Models and data loaders other than the language model "bidirectional_lm" with
    "truncated_bptt" are trained by AllenNLP's code alone. A moving average, gradual unfreezing and
    the schedule "combined" recover as in AllenNLP, which is not exact.

    AllenNLP's checkpoints have the parameters and the optimizer's state. This trainer adds the
    carried LSTM states and metrics (`training_state` of the model), the position in the text
    (`state_dict` of the data loaders), the random number generators, and the sums of the losses of
    the epoch. AllenNLP recovers by reading again what was read before; here reading starts from the
    position.

    When a run is recovered that had ended, or was stopped early, it is not trained any further. It
    gets the metrics and the archive that a kill may have prevented.

    In distributed training each process saves and restores a state, and draws other random numbers
    than the others.

    This is a trainer, not a callback, since a callback can't change how a trainer skips finished
    batches, the metrics of an epoch, or what processes other than the first save.

    # Parameters

    Those of `GradientDescentTrainer`.
    """

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_amp") and hasattr(model, "training_state"):
            raise ConfigurationError(
                "use_amp is not for language models: AllenNLP forgets to divide their gradients by "
                'num_gradient_accumulation_steps. Leave it out, and set "precision": "bfloat16" in '
                "the model"
            )
        if hasattr(model, "training_state"):
            # A recovered run would keep the hooks of AllenNLP's checks, which take memory.
            kwargs["run_confidence_checks"] = False
        super().__init__(model, *args, **kwargs)
        self.model: Any
        self.data_loader: Any
        self._serialization_dir: str
        # `_rank` counts the processes of one machine.
        self._global_rank = dist.get_rank() if self._distributed else 0
        if self._distributed and hasattr(model, "training_state"):
            if self._checkpointer is not None and not self._checkpointer.state_is_sharded:
                # The first process of each machine saves. In AllenNLP only the very first removes.
                self._checkpointer._rank = self._rank
            if model.sparse_gradient_parameters() and not isinstance(
                self._ddp_wrapped_model, SparseDdpWrappedModel
            ):
                raise ConfigurationError(
                    'The sparse gradients of this language model need the ddp_accelerator "torch", '
                    "the default: remove ddp_accelerator, or set num_samples to 0 in a model of "
                    "characters"
                )
            # Until now all had the seed of the configuration, and so the same weights.
            torch.manual_seed(torch.initial_seed() + self._global_rank)
        self._progress: Optional[_Progress] = None
        if hasattr(self.model, "training_state") and hasattr(self.data_loader, "state_dict"):
            self._progress = _Progress(self._serialization_dir)
            # It comes first, so that the other callbacks get the right losses.
            self._callbacks.insert(0, self._progress)
        self._saving: Optional[SavingCallback] = None
        if self._progress is not None and self._checkpointer is not None:
            self._saving = SavingCallback(self._serialization_dir)
            self._callbacks.append(self._saving)

    @classmethod
    @functools.wraps(GradientDescentTrainer.from_partial_objects.__func__)  # type: ignore[attr-defined]
    def from_partial_objects(cls, *args: Any, **kwargs: Any) -> Trainer:  # type: ignore[override]
        create = super().from_partial_objects
        arguments = inspect.signature(create).bind(*args, **kwargs).arguments
        model = arguments["model"]
        if not hasattr(model, "training_state"):
            return create(*args, **kwargs)
        _check_settings(cls, arguments)
        # AllenNLP freezes after `DistributedDataParallel` was made, which then waits for the
        # gradients.
        for name, parameter in model.named_parameters():
            if any(re.search(regex, name) for regex in arguments.get("no_grad") or []):
                parameter.requires_grad_(False)
        keep_memory_of_training()
        if arguments.get("distributed"):
            words = model.vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
            check_same(
                hashlib.sha256("\n".join(words.values()).encode()).hexdigest(),
                "The vocabulary",
            )
            if arguments.get("ddp_accelerator") is None:
                device = arguments["cuda_device"]
                arguments["ddp_accelerator"] = SparseDdpAccelerator(cuda_device=device)
        arguments.setdefault("checkpointer", Lazy(WholeCheckpointer))
        return create(**arguments.pop("kwargs", {}), **arguments)

    def rescale_gradients(self) -> Optional[float]:
        # Neither the average, nor the norm, nor the optimizer has to sort and copy rows again.
        for parameter in self._sparse_gradient_parameters():
            parameter.grad = _coalesced(parameter.grad)
        if isinstance(self._ddp_wrapped_model, SparseDdpWrappedModel):
            self._ddp_wrapped_model.average_sparse_gradients()
        norm = super().rescale_gradients()
        for parameter in self._sparse_gradient_parameters():
            parameter.grad._coalesced_(True)  # torch forgets it when it scales a gradient
        return norm

    def _sparse_gradient_parameters(self) -> List[Any]:
        """Return the parameters that have a sparse gradient now."""
        find: Any = getattr(self.model, "sparse_gradient_parameters", list)
        return [each for each in find() if each.grad is not None and each.grad.is_sparse]

    def clip_gradient(self) -> None:
        if self._grad_clipping is None or not hasattr(self.model, "training_state"):
            return super().clip_gradient()
        # torch can't clip sparse gradients.
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                values = parameter.grad
                if values.is_sparse:
                    parameter.grad = values.coalesce()
                    values = parameter.grad.values()
                values.clamp_(-self._grad_clipping, self._grad_clipping)
        return None

    def get_checkpoint_state(self) -> Optional[TrainerCheckpoint]:
        if self._progress is not None:
            state = {
                "total_batches": self._total_batches_completed,
                "sums": dict(self._progress.sums),
                "model": self.model.training_state(),
                "data_loaders": [
                    loader.state_dict() if hasattr(loader, "state_dict") else None
                    for loader in self._data_loaders
                ],
                "random": get_random_state(self.cuda_device),
            }
            self._progress.states = [state]
            if self._distributed:
                self._progress.states = [None] * self._world_size
                dist.all_gather_object(self._progress.states, state)
        if self._progress is not None:
            # A class of our own can't be loaded with `weights_only`.
            self._metric_tracker.best_epoch_metrics = dict(self._metric_tracker.best_epoch_metrics)
        found = super().get_checkpoint_state()
        if found is None and self._progress is not None:
            # AllenNLP does this after a save; the others would save every batch.
            self._set_last_save(self._epochs_completed, self._batches_in_epoch_completed)
        return found

    def _set_last_save(self, n_epochs: int, n_batches: int) -> None:
        if self._checkpointer is not None:
            self._checkpointer._last_save_time = time.time()
            self._checkpointer._last_save_num_epochs_completed = n_epochs
            self._checkpointer._last_save_num_batches_in_epoch_completed = n_batches

    @property
    def _data_loaders(self) -> List[Any]:
        return [self.data_loader, self._validation_data_loader]

    def _maybe_restore_checkpoint(self) -> None:
        if self._progress is None:
            super()._maybe_restore_checkpoint()
            if hasattr(self.model, "training_state") and self._start_after_epochs_completed + (
                self._start_after_batches_in_epoch_completed
            ):
                logger.warning(
                    "This run continues with LSTM states of zero, since its data loader keeps no "
                    'position in the text; for runs that recover exactly use "truncated_bptt"'
                )
            return
        super()._maybe_restore_checkpoint()
        if not self._progress.recovered:
            if self._distributed:
                self._check_text()
            return
        if len(self._progress.states) != self._world_size:
            raise ConfigurationError(
                f"The checkpoint in {self._serialization_dir} is of {len(self._progress.states)} "
                f"processes, but this run has {self._world_size}"
            )
        state = self._progress.states[self._global_rank]
        self._total_batches_completed = state["total_batches"]  # callbacks need it from the start
        self.model.load_training_state(state["model"])
        for loader, loader_state in zip(self._data_loaders, state["data_loaders"]):
            if loader_state is not None:
                loader.load_state_dict(loader_state)
        # The next checkpoint is saved when the run would have saved it without the kill.
        self._set_last_save(
            self._start_after_epochs_completed, self._start_after_batches_in_epoch_completed
        )
        self._restore_best_model()

    def _check_text(self) -> None:
        """Check that all processes read the same text."""
        files = [
            (os.path.basename(name), size, checksum)
            for loader in self._data_loaders
            if hasattr(loader, "state_dict")
            for name, [size, *_, checksum] in loader.state_dict().get("files", {}).items()
        ]
        check_same(
            files,
            "The text for training or validation",
        )

    def _restore_best_model(self) -> None:
        """
        Save or find the weights of the best epoch. AllenNLP saves them after the checkpoint at the
        end of an epoch, and a kill in between would lose them; and its path to them is that of the
        folder before it was moved.
        """
        path = os.path.join(self._serialization_dir, "best.th")
        is_after_epoch = self._start_after_batches_in_epoch_completed == 0
        if is_after_epoch and self._metric_tracker.is_best_so_far():
            self._best_model_filename = path
            if self._primary:
                self._save_model_state(path)
        elif self._best_model_filename is not None:
            self._best_model_filename = path

    def _train_epoch(self, epoch: int) -> Dict[str, float]:
        if self._progress is None:
            return super()._train_epoch(epoch)
        if self._epochs_completed < self._start_after_epochs_completed:
            return {}
        if self._progress.recovered:
            self._continue_epoch()
        elif self._saving is not None:
            self._saving.save(self)  # A signal may have come during the validation.
        metrics = super()._train_epoch(epoch)
        n_batches = dist_reduce_sum(self._batches_in_epoch_completed)
        for name, total in self._progress.sums.items():
            metrics[name] = float(dist_reduce_sum(total) / n_batches)
        self._progress.sums = {}
        return metrics

    def _save_model_state(self, path: str) -> None:
        if self._progress is None:
            return super()._save_model_state(path)
        wrapped = self._ddp_wrapped_model
        save_whole((self.model if wrapped is None else wrapped).state_dict(), path)

    def _try_train(self) -> Tuple[Dict[str, Any], int]:
        n_completed = self._start_after_epochs_completed
        has_ended = self._start_after_batches_in_epoch_completed == 0 and (
            n_completed >= self._num_epochs or self._metric_tracker.should_stop_early()
        )
        if self._progress is None or not self._progress.recovered or not has_ended:
            saving = self._saving
            with nullcontext() if saving is None else saving.signals_noted(self._distributed):
                return super()._try_train()
        logger.info("The run in %s had ended: there is nothing to train", self._serialization_dir)
        self._continue_epoch()
        n_epochs, self._num_epochs = self._num_epochs, n_completed
        try:
            super()._try_train()  # skips all epochs, and loads the best weights
        finally:
            self._num_epochs = n_epochs
        return self._progress.metrics, n_completed - 1

    def _continue_epoch(self) -> None:
        """Restore where the recovered run was in the epoch to be trained next."""
        assert self._progress is not None
        state = self._progress.states[self._global_rank]
        self._progress.recovered = False
        self._progress.sums = state["sums"]
        self._batches_in_epoch_completed = self._start_after_batches_in_epoch_completed
        # AllenNLP skips nothing: the data loader starts from there.
        self._start_after_batches_in_epoch_completed = 0
        set_random_state(state["random"], self.cuda_device)


def _coalesced(gradient: torch.Tensor) -> torch.Tensor:
    """
    Return a sparse gradient coalesced. It is not copied where its rows are in order, as they are in
    the gradient of the sampled softmax; autograd forgets to say so.
    """
    rows = gradient._indices()[0]  # (n_rows,)
    if bool((rows[1:] > rows[:-1]).all()):
        gradient._coalesced_(True)
    return gradient.coalesce()


class _Progress(TrainerCallback):
    """
    The part of the checkpoints that `ResumableTrainer` adds: the states of the processes, the
    metrics of the last epoch, and the sums of the losses in the current one, which replace those
    that AllenNLP counts from the recovery on.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self.sums: Dict[str, float] = {}
        self.states: List[Any] = []
        self.metrics: Dict[str, Any] = {}
        self.recovered = False

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Dict[str, Any],
        epoch: int,
        batch_number: int,
        is_training: bool,
        is_primary: bool = True,
        batch_grad_norm: Optional[float] = None,
        **kwargs: Any,
    ) -> None:
        if not is_training:
            return
        values = {"loss": batch_metrics["batch_loss"]}
        if "reg_loss" in batch_outputs[0]:
            # AllenNLP's "batch_reg_loss" is the part of the last of the accumulated batches.
            penalties = [each["reg_loss"].item() for each in batch_outputs]
            values["reg_loss"] = sum(penalties) / len(penalties)
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            batch_metrics[name] = self.sums[name] / batch_number

    def on_epoch(
        self,
        trainer: GradientDescentTrainer,
        metrics: Dict[str, Any],
        epoch: int,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        self.metrics = metrics  # other callbacks may add to them

    def state_dict(self) -> Dict[str, Any]:
        return {"processes": self.states, "metrics": dict(self.metrics)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.states = state_dict["processes"]
        self.metrics = state_dict["metrics"]
        self.recovered = True


def _check_settings(trainer_class: Any, arguments: Dict[str, Any]) -> None:
    """
    Check those settings of the trainer of a language model that AllenNLP ignores if they are wrong,
    or fails with at the end of an epoch.
    """
    unknown = sorted(set(arguments.get("kwargs", {})) - {"run_sanity_checks"})
    if unknown and trainer_class is ResumableTrainer:  # A user's subclass may have more.
        known = inspect.signature(GradientDescentTrainer.from_partial_objects).parameters
        raise ConfigurationError(
            f"trainer: there is no setting {', '.join(unknown)}{did_you_mean(unknown[0], known)}"
        )
    names = arguments.get("validation_metric", "-loss")
    model = arguments["model"]
    # Those of a user's own model may be known only in validation, and without that nobody asks.
    is_known = model.get_metrics.__module__.split(".")[0] == __name__.split(".")[0]
    if arguments.get("validation_data_loader") is None or not is_known:
        return
    metrics = [*model.get_metrics(), "loss"]
    if model.get_regularization_penalty() is not None:
        metrics.append("reg_loss")
    for name in [names] if isinstance(names, str) else names:
        if name[:1] not in ("+", "-") or name[1:] not in metrics:
            raise ConfigurationError(
                f"trainer: validation_metric is {name!r}, but must be one of "
                + ", ".join(f"-{metric}" for metric in metrics)
            )
