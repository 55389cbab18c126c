"""The trainer "language_model": AllenNLP's way to the training loop of language models."""

import os
from pathlib import Path
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator
from allennlp.training import Trainer as AllenNlpTrainer

from allennlp_elmo_plugin.files.atomic import LateErrorFile, atomic_file
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.components.truncated_bptt_data_loader import (
    TruncatedBpttDataLoader,
)
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.pretrained.adagrad_file import read_adagrad_state
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import training_sections
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import CHECKPOINT_FILE, CONFIG_FILE, RUN_WEIGHT_FILE
from allennlp_elmo_plugin.training.processes import check_same
from allennlp_elmo_plugin.training.trainer import Trainer


@AllenNlpTrainer.register("language_model")
class LanguageModelTrainer(AllenNlpTrainer):
    """
    Trains a `bidirectional_lm` by the loop of `elmo-train`, `training.Trainer`. A run that was
    stopped or killed continues exactly by `allennlp train --recover`. Its folder has the files of
    `elmo-train`, and those of AllenNLP.

    # Parameters

    num_epochs, patience, ..., tensorboard : optional
        Those of `training.Trainer`.
    adagrad_state : `str`, optional (default = `None`)
        `adagrad.hdf5` of the model that training starts from, which `elmo-import` or a training
        wrote. Adagrad then continues as if it had never stopped; with fresh sums its first updates
        would be too large. A recovered run has its own.
    """

    def __init__(
        self,
        model: Model,
        serialization_dir: str,
        data_loader: DataLoader,
        validation_data_loader: Optional[DataLoader] = None,
        cuda_device: Optional[Union[int, torch.device]] = None,
        distributed: bool = False,
        local_rank: int = 0,
        world_size: int = 1,
        ddp_accelerator: Optional[DdpAccelerator] = None,
        num_epochs: int = 10,
        patience: Optional[int] = None,
        optimizer: str = "adagrad",
        learning_rate: Optional[float] = None,
        warmup_steps: Optional[int] = None,
        grad_norm: float = 10.0,
        num_gradient_accumulation_steps: int = 1,
        validate_first: bool = False,
        save_every_num_batches: Optional[int] = None,
        tensorboard: bool = False,
        adagrad_state: Optional[str] = None,
    ) -> None:
        super().__init__(serialization_dir, cuda_device, distributed, local_rank, world_size)
        loaders = data_loader, validation_data_loader
        if not isinstance(model, BidirectionalLanguageModel) or not all(
            isinstance(loader, TruncatedBpttDataLoader) for loader in loaders
        ):
            raise ConfigurationError(
                'The trainer "language_model" trains a "bidirectional_lm" with the data loader '
                '"truncated_bptt" and a validation_data_path'
            )
        if model.get_regularization_penalty() is not None or ddp_accelerator is not None:
            raise ConfigurationError(
                'The trainer "language_model" has neither a regularizer of the model nor a '
                'ddp_accelerator: leave them out, or use the trainer "gradient_descent"'
            )
        self._serialization_dir: str
        self.model = model
        text, validation = (loader.text for loader in loaders)  # type: ignore[union-attr]
        with configuration_errors((ValueError, FileNotFoundError)):
            self.loop = _Loop(
                model,
                text,
                validation,
                serialization_dir,
                num_epochs=num_epochs,
                patience=patience,
                optimizer=optimizer,
                learning_rate=learning_rate,
                warmup_steps=warmup_steps,
                grad_norm=grad_norm,
                num_gradient_accumulation_steps=num_gradient_accumulation_steps,
                validate_first=validate_first,
                save_every_num_batches=save_every_num_batches,
                tensorboard=tensorboard,
                device=self.cuda_device,
                settings=_settings(serialization_dir),
            )
            is_resumed = os.path.exists(os.path.join(serialization_dir, CHECKPOINT_FILE))
            if distributed:
                check_same(f"Whether there is a {CHECKPOINT_FILE} in the folder", is_resumed)
            if is_resumed:
                self.loop.resume()
            elif adagrad_state is not None:
                path, parameters = cached_path(adagrad_state), model.named_parameters()
                read_adagrad_state(path, parameters, self.loop.optimizer)

    def train(self) -> dict[str, Any]:
        """Train to the end, and return the metrics. The model then has the best weights."""
        with configuration_errors():
            epochs, best = self.loop.train(), self.loop.best
        path = self.get_best_weights_path()
        if path is not None:  # It is on the first of several machines.
            self.model.load_state_dict(torch.load(path, self.cuda_device, weights_only=True))
        if self._distributed:
            # What is left, such as an evaluation on test data, the first process does alone.
            dist.barrier()
            dist.destroy_process_group()
        initial = {name: v for name, v in epochs[0].items() if name.startswith("initial_")}
        of_best = {
            f"best_{name}": v for name, v in epochs[best].items() if name.startswith("validation_")
        }
        return {"best_epoch": best, "epoch": len(epochs) - 1, **initial, **epochs[-1], **of_best}

    def get_best_weights_path(self) -> Optional[str]:
        path = os.path.join(self._serialization_dir, RUN_WEIGHT_FILE)
        return path if os.path.exists(path) else None


class _Loop(Trainer):
    """The loop, which also writes the best weights for AllenNLP's archive."""

    def write_best(self) -> None:
        super().write_best()
        with atomic_file(self.folder / RUN_WEIGHT_FILE) as staged, LateErrorFile(staged) as file:
            torch.save(self.model.state_dict(), file)


def _settings(folder: str) -> dict[str, Any]:
    """Return what the model card says about the training, from the config in its folder."""
    path = Path(folder, CONFIG_FILE)
    return training_sections(read_json_object(path)) if path.exists() else {}
