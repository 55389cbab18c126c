"""Evaluating a language model, and printing its metrics as a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp.evaluation import Evaluator
from allennlp.evaluation.evaluator import SimpleEvaluator

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.registration import override_registered


def metrics_table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of metrics, with a column for each mapping in `columns`."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    table = [["", *columns]]
    for name in names:
        table.append([name, *(_cell(name, column.get(name)) for column in columns.values())])
    widths = [max(map(len, cells)) for cells in zip(*table)]
    lines = []
    for name, *values in table:
        cells = [value.rjust(width) for value, width in zip(values, widths[1:])]
        lines.append("  ".join([name.ljust(widths[0]), *cells]).rstrip())
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
    AllenNLP's default evaluator. For a language model it also prints the metrics and the number of
    predicted words.
    """

    def __call__(self, model: Any, data_loader: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(model, BidirectionalLanguageModel):
            return super().__call__(model, data_loader, *args, **kwargs)
        model.get_metrics(reset=True)  # Drop what an evaluation that failed has left.
        metrics = dict(super().__call__(model, data_loader, *args, **kwargs))
        text = Path(str(getattr(data_loader, "data_path", "text"))).name
        columns = {text: {**metrics, "predicted_words": model.n_predicted_words}}
        print(metrics_table(columns), flush=True)
        return metrics
