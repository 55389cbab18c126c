"""Evaluating a language model, and its metrics as a table."""

from collections.abc import Mapping
from typing import Any

import torch

from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.text_batches import TextBatches

Metrics = dict[str, float]


def evaluate(model: LanguageModel, text: TextBatches) -> Metrics:
    """
    Return the metrics of a model on one pass over a text, read with `drop_last=False` on the
    model's device; see `LanguageModel.get_metrics`.
    """
    was_training = model.training
    model.eval()
    model.get_metrics(reset=True)  # Drop what an evaluation that failed has left.
    with torch.no_grad():
        for batch in text:
            model(**batch)
    model.train(was_training)
    return model.get_metrics(reset=True)


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
