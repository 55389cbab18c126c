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
    line = "| ner_x | f1 | 41.00 ± 1.41 | 44.00 ± 0.00 | +3.00 | +2.06 | 2 | 1.5 / 1.5 min |"
    table = markdown([row])
    assert line in table
    assert "counts differently" not in table


@pytest.mark.parametrize(
    "layer_weights, layers", [([[0.25, 0.75]], True), ([[0.2, 0.8], [0.3, 0.7]], True), ([], False)]
)
def test_pictures(layer_weights: List[List[float]], layers: bool, tmp_path: Path) -> None:
    runs = _runs(layer_weights)
    draw(summarize(runs), runs, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["curves.png", *["layer_weights.png"][: int(layers)], "scores.png"]
    for name in names:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
