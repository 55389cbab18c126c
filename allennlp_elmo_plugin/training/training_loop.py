"""The loop that evaluates in all processes of distributed training."""

from typing import Any, Dict

from allennlp.commands.train import TrainModel
from allennlp.common.util import is_distributed
from allennlp.training.util import evaluate

from allennlp_elmo_plugin.registration import register_anew


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
            found = evaluate(self.model, loader, trainer.cuda_device, self.batch_weight_key)
            metrics.update({f"test_{name}": value for name, value in found.items()})
            self.evaluation_data_loader = None  # type: ignore[assignment]
        return metrics
