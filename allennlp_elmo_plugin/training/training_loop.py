"""The loop that evaluates in all processes of distributed training."""

from typing import Any, Dict

import torch.distributed as dist
from allennlp.commands.train import TrainModel
from allennlp.common.util import is_distributed
from allennlp.data import DataLoader
from allennlp.models import Model
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.util import evaluate

from allennlp_elmo_plugin.progress import titled_bars
from allennlp_elmo_plugin.registration import register_anew
from allennlp_elmo_plugin.training.lost_ranks import lost_ranks_named


@register_anew(TrainModel, "default", constructor="from_partial_objects")
class TrainingLoop(TrainModel):
    """
    AllenNLP's training loop, in which all processes of distributed training evaluate a language
    model on the test set: each reads its rows of the text, and the metrics count all rows. AllenNLP
    evaluates in the first process alone, which then waits for the others forever.

    It replaces the loop "default". Other models are evaluated by AllenNLP's code alone.

    # Parameters

    Those of `TrainModel`.
    """

    @lost_ranks_named()
    def run(self) -> Dict[str, Any]:
        metrics = super().run()
        if (
            is_distributed()
            and self.evaluate_on_test
            and self.evaluation_data_loader is not None
            and hasattr(self.model, "training_state")
        ):
            trainer: Any = self.trainer
            loader = self.evaluation_data_loader
            with titled_bars("test", loader):
                found = evaluate_together(
                    self.model, loader, trainer.cuda_device, self.batch_weight_key
                )
            metrics.update({f"test_{name}": value for name, value in found.items()})
            self.evaluation_data_loader = None  # type: ignore[assignment]
        return metrics


def evaluate_together(
    model: Model, data_loader: DataLoader, cuda_device: Any, batch_weight_key: str = ""
) -> Dict[str, Any]:
    """
    Run AllenNLP's `evaluate` in all processes of distributed training, or in the only one, and
    return the metrics, with the mean of the processes' losses.
    """
    metrics = evaluate(model, data_loader, cuda_device, batch_weight_key)
    if is_distributed() and "loss" in metrics:
        metrics["loss"] = dist_reduce_sum(metrics["loss"]) / dist.get_world_size()
    return metrics
