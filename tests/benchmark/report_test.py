import json
import math
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from allennlp_elmo_plugin.benchmark.report import (
    draw,
    draw_bars,
    draw_layer_weights,
    markdown,
    summarize,
    write_tables,
)
from allennlp_elmo_plugin.benchmark.results import Runs, file_of

NONE: List[List[float]] = []


def some(model: str, *scores: float, mixes: Sequence[List[float]] = NONE) -> List[Dict[str, Any]]:
    """The runs of seeds 1, 2 and so on."""
    return [
        {
            "task": "ner_x",
            "model": model,
            "seed": seed,
            "score": score,
            "allennlp_metrics": {"f1-measure-overall": score / 50},
            "curve": [score / 2, score],
            "layer_weights": list(mixes),
            "epochs": seed + 1,
            "seconds": 60.0 * seed,
            "trained_parameters": 7,
            "stopped_early": True,
            "machine": "A machine, 2 cores",
        }
        for seed, score in enumerate(scores, start=1)
    ]


def two_models(*of_elmo: float, mixes: Sequence[List[float]] = NONE) -> Runs:
    return {
        ("ner_x", "baseline"): some("baseline", 40.0, 42.0),
        ("ner_x", "elmo"): some("elmo", *of_elmo, mixes=mixes),
    }


def test_a_row_has_means_and_deviations_over_the_seeds_that_all_models_have() -> None:
    runs = two_models(44.0, 44.0, 90.0, mixes=[[0.25, 0.75]])
    runs["ner_x", "elmo"][0]["layer_weights"] = [[0.75, 0.25]]
    runs["ner_y", "baseline"], runs["ner_y", "elmo"] = runs["ner_x", "baseline"], []
    (row,) = summarize(runs)
    assert row.pop("baseline") == {
        "mean": 41,
        "std": pytest.approx(2**0.5),
        "seeds": [1, 2],
        "allennlp_mean": pytest.approx(82),
        "seconds": 90,
        "epochs": 2.5,
        "not_stopped_early": 0,
        "trained_parameters": 7,
    }
    elmo = row.pop("elmo")
    assert (elmo["mean"], elmo["std"], elmo["seeds"]) == (44, 0, [1, 2])
    # The standard error is the root of 2 / 2 + 0 / 2.
    delta = {
        "mean": 3,
        "standard_error": pytest.approx(1),
        "beyond_two_standard_errors": True,
    }
    assert row == {
        "task": "ner_x",
        "score_name": "f1",
        "allennlp_metric": "f1-measure-overall",
        "paper_delta": 2.06,
        "machines": ["A machine, 2 cores"],
        "layer_weights": [[0.5, 0.5]],
        "deltas": {"baseline": delta},
        "delta": 3,
    }


def test_the_table_of_two_models() -> None:
    lines = markdown(summarize(two_models(44.0, 44.0))).splitlines()
    titles = "baseline | + ELMo | delta | paper's delta | seeds | time a run"
    assert lines[0] == f"| task | score (test) | {titles} |"
    assert lines[1] == "|---|---|---|---|---|---|---|---|"
    cells = "41.00 ± 1.41 | 44.00 ± 0.00 | **+3.00** ± 1.00 | +2.06 | 2 | 1.5 / 1.5 min"
    assert lines[2] == f"| ner_x | f1 | {cells} |"
    assert lines[-1] == "Machine: A machine, 2 cores."
    # 2 is within twice the root of 2 / 2 + 2 / 2.
    runs = two_models(42.0, 44.0)
    assert "| +2.00 ± 1.41 |" in markdown(summarize(runs))
    runs["ner_x", "elmo"][0]["stopped_early"] = False
    assert summarize(runs)[0]["elmo"]["not_stopped_early"] == 1


def test_the_table_with_word_vectors_and_a_task_without() -> None:
    runs = two_models(44.0, 44.0)
    runs["ner_x", "vectors"] = some("vectors", 41.0, 42.0, 43.0)
    runs["chunking", "baseline"] = some("baseline", 40.0)
    runs["chunking", "elmo"] = some("elmo", 39.0)
    table = markdown(summarize(runs))
    titles = "| baseline | word vectors | + ELMo | delta to baseline | delta to word vectors |"
    assert titles in table
    scores = "41.00 ± 1.41 | 41.50 ± 0.71 | 44.00 ± 0.00"
    assert f"| {scores} | **+3.00** ± 1.00 | **+2.50** ± 0.50 | +2.06 | 2 |" in table
    assert "| 40.00 |  | 39.00 | -1.00 |  |  | 1 | 1.0 / 1.0 min |" in table
    assert "Time: baseline / word vectors / with ELMo, which" in table


@pytest.mark.parametrize("mixes", [[[0.2, 0.8], [0.3, 0.7]], NONE])
def test_files(mixes: List[List[float]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = two_models(44.0, 44.0, mixes=mixes)
    for each in (run for some in runs.values() for run in some):
        file = file_of(tmp_path, "ner_x", each["model"], each["seed"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(each), encoding="utf-8")
    table = write_tables(tmp_path)
    assert table == markdown(summarize(runs))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == table
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == summarize(runs)
    drawn: Dict[str, List[Any]] = {}
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    def texts(figure: Figure, path: str, **settings: Any) -> None:
        axes: Axes = figure.axes[0]
        ticks = [text.get_text() for text in axes.get_xticklabels()]
        name = "lines" if axes.lines and not axes.patches else "/".join(ticks)
        legend = axes.get_legend()
        assert legend is not None and settings == {"format": "png"}
        drawn[name] = [text.get_text() for text in legend.get_texts()]
        if name == "lines":
            drawn["y"] = [list(line.get_ydata()) for line in axes.lines]
        Path(path).touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", texts)
        draw(tmp_path)
    titles = ["baseline", "+ ELMo"]
    expected: Dict[str, List[Any]] = {"ner_x\nf1": titles, "lines": titles}
    expected["y"] = [[20, 40], [21, 42], [22, 44], [22, 44]]
    if mixes:
        expected["ner_x/ner_x, mix 2"] = ["token layer", "LSTM 1"]
    assert drawn == expected
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["curves.png", *["layer_weights.png"][: len(mixes)], "scores.png"]
    draw(tmp_path)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_bars_have_their_values() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    draw_bars(
        axes, ["a", "b"], {"x": [1.0, None], "y": [3.0, 4.0]}, {"x": [0.5, None], "y": [0, 1]}
    )
    bars = [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in axes.patches]
    assert [bar[:2] for bar in bars] == [pytest.approx((x, 0.45)) for x in (-0.45, 0.55, 0, 1)]
    assert [bar[2] for bar in bars] == pytest.approx([1, math.nan, 3, 4], nan_ok=True)
    assert [text.get_text() for text in axes.texts] == ["1", "", "3", "4"]
    (axes,) = draw_layer_weights({"squad": [0.25, 0.5, 0.2], "ner": [0.6, 0.3, 0.1]}).axes
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.6", "0.5", "0.3", "0.2", "0.1"]
