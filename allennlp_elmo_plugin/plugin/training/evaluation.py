"""Evaluating a language model, and printing its metrics as a table."""

from pathlib import Path
from typing import Any

from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.training.evaluation import metrics_table


@override_registered(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """AllenNLP's default evaluator, which also prints a language model's metrics as a table."""

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(model, BidirectionalLanguageModel):
            return super().__call__(model, data_loader, *args, **kwargs)
        model.get_metrics(reset=True)  # Drop what an evaluation that failed has left.
        metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
        text = Path(str(getattr(data_loader, "data_path", "text"))).name
        columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
        print(metrics_table(columns), flush=True)
        return metrics
