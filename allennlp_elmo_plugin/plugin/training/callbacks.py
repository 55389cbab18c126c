"""Callbacks of AllenNLP's trainer."""

import logging
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.util import evaluate

from allennlp_elmo_plugin.pretrained.adagrad_file import read_adagrad_state
from allennlp_elmo_plugin.pretrained.downloads import cached_path

logger = logging.getLogger(__name__)


def _is_recovered(trainer: Any) -> bool:
    n_epochs = trainer._start_after_epochs_completed
    return bool(n_epochs or trainer._start_after_batches_in_epoch_completed)


@TrainerCallback.register("adagrad_state")
class AdagradStateCallback(TrainerCallback):
    """
    Starts training with the state of Adagrad that `allennlp elmo-import` read from a checkpoint of
    bilm-tf. The imported model then trains as if it had never stopped; with fresh accumulators its
    first updates would be too large. A recovered run uses its own checkpoint instead.

    ```jsonnet
    model: { type: "from_archive", archive_file: "imported/model.tar.gz" },
    trainer: {
      optimizer: { type: "adagrad", lr: 0.2, initial_accumulator_value: 1.0, eps: 0.0 },
      callbacks: [{ type: "adagrad_state", file: "imported/adagrad.hdf5" }],
    }
    ```
    """

    def __init__(self, serialization_dir: str, file: str) -> None:
        super().__init__(serialization_dir)
        self.file = file

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        if _is_recovered(trainer):
            return
        try:
            step = read_adagrad_state(
                cached_path(self.file), trainer.model.named_parameters(), trainer.optimizer
            )
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"adagrad_state: {error}") from error
        logger.info("The state of Adagrad after %d updates, from %s", step, self.file)


@TrainerCallback.register("initial_validation")
class InitialValidationCallback(TrainerCallback):
    """
    Validates before the first update, to show how a pretrained model does on the new text. It
    writes the metrics to the log, to `metrics_initial.json` in the folder of the run, and as
    `initial_validation_...` to the metrics of training. Training itself does not change.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self.metrics: dict[str, float] = {}

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        if _is_recovered(trainer):
            return
        if trainer._validation_data_loader is None:
            raise ConfigurationError("initial_validation needs validation_data_path")
        metrics = evaluate(trainer.model, trainer._validation_data_loader, trainer.cuda_device)
        self.metrics = {f"initial_validation_{key}": value for key, value in metrics.items()}
        if is_primary:
            for key, value in self.metrics.items():
                # A warning is shown at any level of logging.
                logger.warning("Before training: %s %.4f", key, value)
            dump_metrics(f"{self.serialization_dir}/metrics_initial.json", self.metrics)

    def on_epoch(self, trainer: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        metrics.update(self.metrics)

    def state_dict(self) -> dict[str, Any]:
        return {"metrics": self.metrics}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.metrics = state_dict["metrics"]
