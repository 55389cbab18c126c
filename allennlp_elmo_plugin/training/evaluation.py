"""
The evaluation of a language model: its metrics don't mix with others, and are printed as a table.
"""

import functools
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ContextManager, Dict, Mapping

from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator
from allennlp.models import Model
from allennlp.training import util as training_util

from allennlp_elmo_plugin.progress import titled_bars
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


@functools.wraps(_get_metrics)
def get_metrics(model: Model, *args: Any, **kwargs: Any) -> Dict[str, float]:
    """AllenNLP's function of this name, which returns a plain dictionary of any model."""
    return dict(_get_metrics(model, *args, **kwargs))


@functools.wraps(_evaluate)
def evaluate(model: Model, *args: Any, **kwargs: Any) -> Dict[str, Any]:
    """
    AllenNLP's function of this name. The metrics of a language model are those of this evaluation
    alone, whatever it interrupts.
    """
    with _separate_evaluation(model):
        return dict(_evaluate(model, *args, **kwargs))


def _separate_evaluation(model: Any) -> ContextManager[None]:
    return getattr(model, "separate_evaluation", nullcontext)()


@register_anew(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """
    AllenNLP's evaluator, `allennlp evaluate`'s default. For a language model, the metrics and the
    number of predicted words are printed.

    # Parameters

    Those of `SimpleEvaluator`.
    """

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        is_language_model = hasattr(model, "separate_evaluation")
        # Of others, the length may be costly, or not known.
        data = data_loader if is_language_model else None
        with _separate_evaluation(model):
            with titled_bars("evaluation", data):
                metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
            if is_language_model:
                text = Path(str(getattr(data_loader, "data_path", "text"))).name
                columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
                print(metrics_table(columns), flush=True)
        return metrics
