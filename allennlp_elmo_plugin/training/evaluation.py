"""
The metrics of a language model in validation and evaluation: a loss that agrees with the
perplexity, and a table of them on standard output.
"""

import functools
import math
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from allennlp.common.util import dump_metrics
from allennlp.data import DataLoader
from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator
from allennlp.models import Model
from allennlp.training import util as training_util

from allennlp_elmo_plugin.registration import register_anew

# AllenNLP's own, which the plugin replaces under their names.
_get_metrics = training_util.get_metrics
_evaluate = training_util.evaluate


def metrics_table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """
    Return the metrics of a language model as a table.

    # Parameters

    columns : `Mapping[str, Mapping[str, Any]]`
        The metrics by the heading of their column. A heading is one word.
    """
    names = sorted({name for column in columns.values() for name in column}, key=_order)
    table = [["", *columns]]
    for name in names:
        table.append([name, *(_cell(name, column.get(name)) for column in columns.values())])
    widths = [max(map(len, cells)) for cells in zip(*table)]
    return "\n".join(
        "  ".join(
            [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:]))]
        ).rstrip()
        for cells in table
    )


_ORDER = ("perplexity", "forward_perplexity", "backward_perplexity", "loss", "predicted_words")


def _order(name: str) -> Any:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.2f}" if name.endswith("perplexity") else f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _agree(model: Model, metrics: Dict[str, Any]) -> Dict[str, Any]:
    """
    Make the loss of a language model outside of training the logarithm of the perplexity. AllenNLP
    averages the losses of the batches, so that the words of a small last batch weigh more.
    """
    perplexity = metrics.get("perplexity", 0.0)
    is_evaluated = hasattr(model, "training_state") and not model.training
    if is_evaluated and "loss" in metrics and 0 < perplexity < math.inf:
        metrics["loss"] = math.log(perplexity)
    return metrics


@functools.wraps(_get_metrics)
def get_metrics(model: Model, *args: Any, **kwargs: Any) -> Dict[str, float]:
    """AllenNLP's function of this name, with a loss that agrees with the perplexity."""
    return _agree(model, _get_metrics(model, *args, **kwargs))


@functools.wraps(_evaluate)
def evaluate(
    model: Model,
    data_loader: DataLoader,
    cuda_device: Any = -1,
    batch_weight_key: Optional[str] = None,
    output_file: Optional[str] = None,
    predictions_output_file: Optional[str] = None,
) -> Dict[str, Any]:
    """AllenNLP's function of this name, with a loss that agrees with the perplexity."""
    metrics = _evaluate(
        model,
        data_loader,
        cuda_device,
        batch_weight_key,  # type: ignore[arg-type]
        predictions_output_file=predictions_output_file,  # type: ignore[arg-type]
    )
    _agree(model, metrics)
    if output_file is not None:
        dump_metrics(output_file, metrics, log=True)
    return metrics


@register_anew(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """
    AllenNLP's evaluator, `allennlp evaluate`'s default. For a language model the loss agrees with
    the perplexity, and the metrics and the number of predicted words are printed.

    # Parameters

    Those of `SimpleEvaluator`.
    """

    def __call__(
        self,
        model: Model,
        data_loader: DataLoader,
        batch_weight_key: Optional[str] = None,
        metrics_output_file: Any = None,
        predictions_output_file: Any = None,
    ) -> Dict[str, Any]:
        arguments: Any = (model, data_loader, batch_weight_key)
        if not hasattr(model, "training_state"):
            return super().__call__(*arguments, metrics_output_file, predictions_output_file)
        metrics = super().__call__(*arguments, None, predictions_output_file)
        _agree(model, metrics)
        if metrics_output_file is not None:
            dump_metrics(os.fspath(metrics_output_file), metrics, log=True)
        text = Path(str(getattr(data_loader, "data_path", "text"))).name
        n_words: Any = model.n_predicted_words
        print(metrics_table({text: {**metrics, "predicted_words": n_words}}), flush=True)
        return metrics
