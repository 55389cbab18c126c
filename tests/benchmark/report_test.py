import json
import math
from pathlib import Path
from typing import Any, Dict, List

import pytest

from allennlp_elmo_plugin.benchmark.report import (
    draw,
    draw_bars,
    draw_layer_weights,
    markdown,
    summarize,
    weights_by_place,
    write_tables,
)
from allennlp_elmo_plugin.benchmark.results import Runs, file_of


def _run(model: str, seed: int, score: float, layer_weights: List[List[float]]) -> Dict[str, Any]:
    return {
        "task": "ner_x",
        "model": model,
        "seed": seed,
        "score": score,
        "allennlp_metrics": {"f1-measure-overall": score / 100},
        "curve": [score / 2, score],
        "layer_weights": layer_weights,
        "epochs": 2,
        "seconds": 90.0,
        "trained_parameters": 7,
        "stopped_early": True,
        "machine": "A machine, 2 cores",
    }


def _runs(layer_weights: List[List[float]]) -> Runs:
    return {
        ("ner_x", "baseline"): [_run("baseline", 1, 40.0, []), _run("baseline", 2, 42.0, [])],
        ("ner_x", "elmo"): [_run("elmo", seed, 44.0, layer_weights) for seed in (1, 2)],
    }


def test_table() -> None:
    (row,) = summarize(_runs([[0.25, 0.75]]))
    assert row["baseline"]["std"] == pytest.approx(2**0.5)
    assert row["layer_weights"] == [[0.25, 0.75]]
    # The standard error is the root of 2 / 2 + 0 / 2.
    cells = "41.00 ± 1.41 | 44.00 ± 0.00 | **+3.00** ± 1.00 | +2.06 | 2 | 1.5 / 1.5 min"
    table = markdown([row])
    assert f"| ner_x | f1 | {cells} |" in table


def test_two_baselines() -> None:
    runs = _runs([[0.25, 0.75]])
    runs["ner_x", "vectors"] = [_run("vectors", seed, 40.0 + seed, []) for seed in (1, 2, 3)]
    runs["ner_y", "baseline"], runs["ner_y", "elmo"] = runs["ner_x", "baseline"], []
    runs["ner_z", "baseline"] = [_run("baseline", 1, 40.0, [])]
    runs["ner_z", "elmo"] = [_run("elmo", 1, 39.0, [])]
    row, without = summarize(runs)
    assert row["vectors"]["seeds"] == [1, 2]
    assert row["vectors"]["mean"] == 41.5 and row["vectors"]["std"] == pytest.approx(0.5**0.5)
    assert row["deltas"]["vectors"] == {
        "mean": 2.5,
        "standard_error": pytest.approx(0.5),
        "beyond_two_standard_errors": True,
    }
    assert row["delta"] == row["deltas"]["baseline"]["mean"] == 3
    assert without["deltas"] == {
        "baseline": {
            "mean": -1,
            "standard_error": None,
            "beyond_two_standard_errors": None,
        }
    }
    table = markdown([row, without])
    assert (
        "| baseline | word vectors | + ELMo | delta to baseline | delta to word vectors |" in table
    )
    scores = "41.00 ± 1.41 | 41.50 ± 0.71 | 44.00 ± 0.00"
    assert f"| {scores} | **+3.00** ± 1.00 | **+2.50** ± 0.50 | +2.06 | 2 |" in table
    assert "| 40.00 |  | 39.00 | -1.00 |  | +2.06 | 1 |" in table
    assert "Machine: A machine, 2 cores." in table


def test_a_small_delta() -> None:
    runs = _runs([])
    runs["ner_x", "elmo"] = [_run("elmo", 1, 42.0, []), _run("elmo", 2, 44.0, [])]
    # 2 is within twice the root of 2 / 2 + 2 / 2.
    assert "| +2.00 ± 1.41 |" in markdown(summarize(runs))


def test_runs_that_ended_at_the_last_epoch_are_named() -> None:
    runs = _runs([])
    assert "ended at the last epoch" not in markdown(summarize(runs))
    for run in (runs["ner_x", "baseline"][1], *runs["ner_x", "elmo"]):
        run["stopped_early"] = False
    (row,) = summarize(runs)
    assert (row["baseline"]["not_stopped_early"], row["elmo"]["not_stopped_early"]) == (1, 2)
    assert "better: 1 of ner_x baseline, 2 of ner_x + ELMo. More epochs" in markdown([row])


@pytest.mark.parametrize("layer_weights", [[[0.2, 0.8], [0.3, 0.7]], []])
def test_files(layer_weights: List[List[float]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = _runs(layer_weights)
    runs["ner_x", "vectors"] = [_run("vectors", seed, 41.0, []) for seed in (1, 2)]
    for each in (run for some in runs.values() for run in some):
        file = file_of(tmp_path, "ner_x", each["model"], each["seed"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(each), encoding="utf-8")
    assert write_tables(tmp_path) == markdown(summarize(runs))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == markdown(summarize(runs))
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == summarize(runs)
    draw(tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["curves.png", *["layer_weights.png"][: len(layer_weights)], "scores.png"]
    for name in names:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_two_mixes_are_those_of_output_and_input() -> None:
    squad = {"task": "squad", "layer_weights": [[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]}
    ner = {"task": "ner", "layer_weights": [[0.3, 0.6, 0.1]]}
    found = weights_by_place([squad, ner, {"task": "mine", "layer_weights": []}])
    assert found == {
        "input": {"squad": [0.4, 0.4, 0.2], "ner": [0.3, 0.6, 0.1]},
        "output": {"squad": [0.1, 0.2, 0.7]},
    }
    assert list(found) == ["input", "output"]
    three = [{"task": "mine", "layer_weights": [[1.0]] * 3}]
    assert list(weights_by_place(three)) == ["mix 1", "mix 2", "mix 3"]


def test_the_picture_has_each_weight() -> None:
    pytest.importorskip("matplotlib")
    weights = {"input": {"squad": [0.25, 0.5, 0.2], "ner": [0.3, 0.6, 0.1]}}
    figure = draw_layer_weights({**weights, "output": {"small": [0.5, 0.45]}})
    panels: List[Any] = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["input", "output"]
    names = [[text.get_text() for text in axes.get_xticklabels()] for axes in panels]
    assert names == [["squad", "ner"], ["small"]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["token layer", "LSTM 1", "LSTM 2"]
    assert [text.get_text() for text in panels[1].texts] == ["0.5", "0.45", ""]


def test_bars() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    draw_bars(
        axes, ["a", "b"], {"x": [1.0, None], "y": [3.0, 4.0]}, {"x": [0.5, None], "y": [0, 1]}
    )
    bars = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]
    assert [bar[:2] for bar in bars] == [pytest.approx((x, 0.45)) for x in (-0.45, 0.55, 0, 1)]
    assert [bar[2] for bar in bars] == pytest.approx([1, math.nan, 3, 4], nan_ok=True)
    assert [text.get_text() for text in axes.texts] == ["1", "", "3", "4"]
