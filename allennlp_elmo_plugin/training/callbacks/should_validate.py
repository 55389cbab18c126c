"""The callback that says in which epochs to validate."""

from typing import Any, Dict, Optional

from allennlp.training import GradientDescentTrainer
from allennlp.training.callbacks import ShouldValidateCallback, TrainerCallback

from allennlp_elmo_plugin.registration import register_anew


@register_anew(TrainerCallback, "should_validate_callback")
class ResumableShouldValidateCallback(ShouldValidateCallback):
    """
    AllenNLP's callback, which decides about an epoch when this begins, from its number. AllenNLP's
    decides at the end of the epoch before, before the weights of that epoch are saved: as the best
    it then saves those of a later epoch, which isn't validated. It also tests the weights of the
    last epoch, if the last validation was the best, and takes the epoch in which a run recovers for
    the first.

    It replaces the callback "should_validate_callback".

    # Parameters

    Those of `ShouldValidateCallback`.
    """

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        # Not in `on_batch` alone, as a checkpoint may be that of an epoch's last batch.
        epoch = trainer._start_after_epochs_completed
        trainer._should_validate_this_epoch = self._should_validate(epoch)

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
        trainer._should_validate_this_epoch = self._should_validate(epoch)

    def on_epoch(self, *args: Any, **kwargs: Any) -> None:
        """
        Do nothing.
        """

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[int] = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        best = trainer._best_model_filename
        wrapped = trainer._ddp_wrapped_model
        if wrapped is not None and wrapped.is_sharded:
            return  # By now AllenNLP has made one file of the shards, which they can't load.
        if metrics is not None and best is not None and metrics["best_epoch"] != epoch:
            trainer._load_model_state(best)
