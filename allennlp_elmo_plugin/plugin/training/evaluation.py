"""Evaluating a language model, and printing its metrics as a table."""

import os
from pathlib import Path
from typing import Any, Optional, Union

from allennlp.common.util import dump_metrics
from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import (
    BidirectionalLanguageModel,
    loss_of,
)
from allennlp_elmo_plugin.plugin.registration import override_registered
from allennlp_elmo_plugin.training.evaluation import metrics_table


@override_registered(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """AllenNLP's default evaluator, which also prints a language model's metrics as a table."""

    def __call__(
        self,
        model: Any,
        data_loader: Any,
        batch_weight_key: Optional[str] = None,
        metrics_output_file: Union[str, "os.PathLike[str]", None] = None,
        predictions_output_file: Union[str, "os.PathLike[str]", None] = None,
    ) -> dict[str, Any]:
        evaluate: Any = super().__call__
        arguments = model, data_loader, batch_weight_key
        if not isinstance(model, BidirectionalLanguageModel):
            return evaluate(*arguments, metrics_output_file, predictions_output_file)
        model.get_metrics(reset=True)  # Drop what an evaluation that failed has left.
        metrics = dict(evaluate(*arguments, None, predictions_output_file))
        # AllenNLP's is the mean of batches, in which the words of a small last one count more.
        metrics["loss"] = loss_of(metrics["perplexity"])
        if metrics_output_file is not None:
            dump_metrics(str(metrics_output_file), metrics, log=True)
        text = Path(str(getattr(data_loader, "data_path", "text"))).name
        columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
        print(metrics_table(columns), flush=True)
        return metrics
