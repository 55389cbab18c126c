"""The callback that continues the training of a checkpoint of bilm-tf."""

import logging
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.modules.downloads import cached_path
from allennlp_elmo_plugin.training.adagrad_file import read_adagrad_state

logger = logging.getLogger(__name__)


@TrainerCallback.register("adagrad_state")
class AdagradStateCallback(TrainerCallback):
    """
    Starts training with the state of Adagrad that `allennlp elmo-import` read from a checkpoint of
    bilm-tf. With the imported model, training continues as if it had never stopped; with fresh
    accumulators the first updates would be too large.

    ```jsonnet
    model: { type: "from_archive", archive_file: "imported/model.tar.gz" },
    trainer: {
      optimizer: { type: "adagrad", lr: 0.2, initial_accumulator_value: 1.0, eps: 0.0 },
      callbacks: [{ type: "adagrad_state", file: "imported/adagrad.hdf5" }],
    }
    ```

    A recovered run keeps the state of its checkpoint.

    # Parameters

    serialization_dir : `str`
        Passed by the trainer.
    file : `str`
        The `adagrad.hdf5`.
    """

    def __init__(self, serialization_dir: str, file: str) -> None:
        super().__init__(serialization_dir)
        self.file = file

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        if trainer._start_after_epochs_completed or trainer._start_after_batches_in_epoch_completed:
            return
        try:
            step = read_adagrad_state(
                cached_path(self.file), trainer.model.named_parameters(), trainer.optimizer
            )
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"adagrad_state: {error}") from error
        logger.info("The state of Adagrad after %d updates, from %s", step, self.file)
