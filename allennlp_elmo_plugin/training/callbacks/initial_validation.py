"""The callback that validates before the first update."""

import logging
import os
from typing import Any, Dict

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import dump_metrics
from allennlp.training.callbacks import TrainerCallback
from allennlp.training.util import evaluate

logger = logging.getLogger(__name__)


@TrainerCallback.register("initial_validation")
class InitialValidationCallback(TrainerCallback):
    """
    Validates before the first update, to show how a pretrained model does on the new text. The
    metrics are in the log, in `metrics_initial.json` in the folder of the run, and among those of
    training as `initial_validation_...`. Training itself does not change.

    # Parameters

    serialization_dir : `str`
        Passed by the trainer.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self.metrics: Dict[str, float] = {}

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        n_epochs = trainer._start_after_epochs_completed
        if self.metrics or n_epochs or trainer._start_after_batches_in_epoch_completed:
            return
        if trainer._validation_data_loader is None:
            raise ConfigurationError("initial_validation needs validation_data_path")
        metrics = evaluate(trainer.model, trainer._validation_data_loader, trainer.cuda_device)
        self.metrics = {f"initial_validation_{key}": value for key, value in metrics.items()}
        if is_primary:
            for key, value in self.metrics.items():
                # At a level that is always shown, for comparison with the metrics of training.
                logger.warning("Before training: %s %.4f", key, value)
            path = os.path.join(self.serialization_dir, "metrics_initial.json")
            dump_metrics(path, self.metrics)

    def on_epoch(self, trainer: Any, metrics: Dict[str, Any], *args: Any, **kwargs: Any) -> None:
        metrics.update(self.metrics)

    def state_dict(self) -> Dict[str, Any]:
        return {"metrics": self.metrics}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.metrics = state_dict["metrics"]
