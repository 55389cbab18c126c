from pathlib import Path
from typing import Any

import pytest

from allennlp_elmo_plugin.analysis.probe_report import draw, markdown


def _results(task: str) -> dict[str, Any]:
    def accuracies(value: float) -> dict[str, Any]:
        return {"all": value, "ambiguous": value - 10, "unseen": None}

    rows = [("token layer", 0, "both", 80.0), ("LSTM 1", 1, "both", 90.125)]
    rows.append(("LSTM 1, forward", 1, "forward", 85.0))
    layers = [
        {"name": name, "layer": layer, "direction": direction, "accuracy": accuracies(value)}
        for name, layer, direction, value in rows
    ]
    n_test = {"all": 1200, "ambiguous": 7, "unseen": 0}
    numbers = {"n_train": 3000, "n_test": n_test, "n_labels": 12}
    return {"task": task, **numbers, "baseline": accuracies(70.0), "layers": layers}


def test_the_table_has_each_layer_and_the_figures_of_the_paper() -> None:
    lines = markdown(_results("pos")).splitlines()
    assert lines[:6] == [
        "| | all (1,200) | ambiguous (7) | unseen (0) | paper |",
        "|---|---|---|---|---|",
        "| most frequent tag of the word | 70.00 | 60.00 |  |  |",
        "| token layer | 80.00 | 70.00 |  |  |",
        "| LSTM 1 | 90.12 | 80.12 |  | 97.3 |",
        "| LSTM 1, forward | 85.00 | 75.00 |  |  |",
    ]
    assert "3,000 examples to train, with 12 tags" in lines[-1]
    row = "| most frequent sense of the lemma | 70.00 | 60.00 |  | 65.9 |"
    assert row in markdown(_results("wsd"))


def test_the_picture_has_a_line_for_each_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: dict[str, Any] = {}

    def watching(figure: Any, path: Path) -> None:
        for line in figure.axes[0].lines:
            drawn[line.get_label()] = (list(line.get_xdata()), list(line.get_ydata()))
        drawn["ticks"] = [text.get_text() for text in figure.axes[0].get_xticklabels()]

    monkeypatch.setattr(figures.Figure, "savefig", watching)
    draw(_results("pos"), Path("layers.png"))
    assert drawn == {
        "both": ([0, 1], [80.0, 90.125]),
        "forward": ([0, 1], [80.0, 85.0]),
        "most frequent tag": ([0, 1], [70.0, 70.0]),
        "Peters et al. (2018)": ([1, 2], [97.3, 96.8]),
        "ticks": ["token layer", "LSTM 1"],
    }
