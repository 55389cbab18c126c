"""The evaluation of a language model, whose metrics are printed as a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.registration import override_registered


def metrics_table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the metrics of a language model as a table; `columns` have headings of one word."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    table = [["", *columns]]
    for name in names:
        table.append([name, *(_cell(name, column.get(name)) for column in columns.values())])
    widths = [max(map(len, cells)) for cells in zip(*table)]
    lines = []
    for first, *others in table:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def _cell(name: str, value: Any) -> str:
    if name == "unknown_words" and value is not None:
        return f"{value:.2%}"
    if isinstance(value, float):
        return f"{value:,.2f}" if name.endswith("perplexity") else f"{value:,.4f}"
    return "" if value is None else f"{value:,}"


@override_registered(Evaluator, "simple")
class LanguageModelEvaluator(SimpleEvaluator):
    """
    AllenNLP's evaluator, `allennlp evaluate`'s default. For a language model, the metrics and the
    number of predicted words are printed.
    """

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(model, BidirectionalLanguageModel):
            return super().__call__(model, data_loader, *args, **kwargs)
        model.get_metrics(reset=True)  # An evaluation before this one may have failed.
        metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
        text = Path(str(getattr(data_loader, "data_path", "text"))).name
        columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
        print(metrics_table(columns), flush=True)
        return metrics
