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
    names = ["", *dict.fromkeys(name for column in columns.values() for name in column)]
    width = max(map(len, names))
    table = [[name.ljust(width) for name in names]]
    for title, column in columns.items():
        cells = [title, *(_cell(name, column.get(name)) for name in names[1:])]
        width = max(map(len, cells))
        table.append([cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*table))


def _cell(name: str, value: Any) -> str:
    if name == "unknown_words" and value is not None:
        return f"{value:.2%}"
    if isinstance(value, float):
        return f"{value:,.2f}" if name.endswith("perplexity") else f"{value:,.4f}"
    return "" if value is None else f"{value:,}"


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
