from pathlib import Path
from typing import Any, Dict, List

import pytest

from allennlp_elmo_plugin.benchmark.report import draw, markdown, summarize
from allennlp_elmo_plugin.benchmark.results_folder import Runs


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
    assert "counts differently" not in table


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
    for run, stopped_early in zip(runs["ner_x", "baseline"], (True, False)):
        run["stopped_early"] = stopped_early
    (row,) = summarize(runs)
    assert (row["baseline"]["not_stopped_early"], row["elmo"]["not_stopped_early"]) == (1, 0)
    assert "Trained to the last epoch" in markdown([row])
    assert ": 1 run of ner_x baseline. " in markdown([row])
    for run in runs["ner_x", "elmo"]:
        run["stopped_early"] = False
    assert ": 1 run of ner_x baseline, 2 of ner_x + ELMo. " in markdown(summarize(runs))
    runs["ner_x", "baseline"][1]["stopped_early"] = True
    assert ": 2 runs of ner_x + ELMo. " in markdown(summarize(runs))


@pytest.mark.parametrize("layer_weights", [[[0.2, 0.8], [0.3, 0.7]], []])
def test_pictures(layer_weights: List[List[float]], tmp_path: Path) -> None:
    runs = _runs(layer_weights)
    runs["ner_x", "vectors"] = [_run("vectors", seed, 41.0, []) for seed in (1, 2)]
    draw(summarize(runs), runs, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["curves.png", *["layer_weights.png"][: len(layer_weights)], "scores.png"]
    for name in names:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
