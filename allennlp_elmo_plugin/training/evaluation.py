"""
The evaluation of a language model, whose metrics are printed as a table.
"""

from pathlib import Path
from typing import Any, Dict, Mapping

from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator

from allennlp_elmo_plugin.registration import register_anew


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


@register_anew(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """
    AllenNLP's evaluator, `allennlp evaluate`'s default. For a language model, the metrics and the
    number of predicted words are printed.

    # Parameters

    Those of `SimpleEvaluator`.
    """

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        is_language_model = hasattr(model, "training_state")
        if is_language_model:
            model.get_metrics(reset=True)
        metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
        if is_language_model:
            text = Path(str(getattr(data_loader, "data_path", "text"))).name
            columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
            print(metrics_table(columns), flush=True)
        return metrics
