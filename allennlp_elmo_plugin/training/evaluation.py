"""
The metrics of a language model in validation and evaluation: a loss that agrees with the
perplexity, and a table of them on standard output.
"""

import functools
import math
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping

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


class _Metrics(Dict[str, Any]):
    """
    Metrics of a language model, in which a loss that is set becomes the logarithm of the
    perplexity. AllenNLP sets the mean of the batches' losses, in which the words of a small last
    batch weigh more.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        perplexity = self.get("perplexity", 0.0)
        if name == "loss" and 0 < perplexity < math.inf:
            value = math.log(perplexity)
        super().__setitem__(name, value)


@contextmanager
def _agreeing_loss(model: Any) -> Iterator[None]:
    """Let a model return its metrics as `_Metrics` if it is a language model, not in training."""
    if not hasattr(model, "training_state") or model.training:
        yield
        return
    get_own_metrics = model.get_metrics
    model.get_metrics = lambda reset=False: _Metrics(get_own_metrics(reset))
    try:
        yield
    finally:
        del model.get_metrics


@functools.wraps(_get_metrics)
def get_metrics(model: Model, *args: Any, **kwargs: Any) -> Dict[str, float]:
    """AllenNLP's function of this name, with a loss that agrees with the perplexity."""
    with _agreeing_loss(model):
        return dict(_get_metrics(model, *args, **kwargs))


@functools.wraps(_evaluate)
def evaluate(model: Model, *args: Any, **kwargs: Any) -> Dict[str, Any]:
    """AllenNLP's function of this name, with a loss that agrees with the perplexity."""
    model.eval()
    with _agreeing_loss(model):
        return dict(_evaluate(model, *args, **kwargs))


@register_anew(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """
    AllenNLP's evaluator, `allennlp evaluate`'s default. For a language model the loss agrees with
    the perplexity, and the metrics and the number of predicted words are printed.

    # Parameters

    Those of `SimpleEvaluator`.
    """

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        model.eval()
        # Of others, the length may be costly, or not known.
        data = data_loader if hasattr(model, "training_state") else None
        with _agreeing_loss(model), titled_bars("evaluation", data):
            metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
        if hasattr(model, "training_state"):
            text = Path(str(getattr(data_loader, "data_path", "text"))).name
            columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
            print(metrics_table(columns), flush=True)
        return metrics
