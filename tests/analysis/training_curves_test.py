import json
import math
from pathlib import Path

import pytest

from allennlp_elmo_plugin.analysis.training_curves import draw_curves, read_run


def write_metrics(folder: Path, epoch: int, **perplexities: float) -> None:
    metrics = {f"{name}_perplexity": value for name, value in perplexities.items()}
    path = folder / f"metrics_epoch_{epoch}.json"
    path.write_text(json.dumps({"epoch": epoch, **metrics}), encoding="utf-8")


def test_a_figure_has_a_curve_for_each_perplexity_and_names_the_lowest(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    # A fine-tuning of four epochs, of which the third diverged
    write_metrics(tmp_path, 0, initial_validation=900.0, training=50.0, validation=40.0)
    write_metrics(tmp_path, 1, training=30.0, validation=30.0, validation_forward=35.0)
    write_metrics(tmp_path, 2, training=math.nan, validation=math.inf)
    write_metrics(tmp_path, 3, training=20.0, validation=35.0)
    curves = read_run(str(tmp_path))
    assert curves == {
        "training": [(0.5, 50), (1.5, 30), (3.5, 20)],
        "validation": [(0, 900), (1, 40), (2, 30), (4, 35)],
        "validation_forward": [(2, 35)],
    }
    for ending, start in {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}.items():
        path = tmp_path / f"curves.{ending}"
        draw_curves({"other & <another>": curves, "run": curves}, str(path))
        assert path.read_bytes().startswith(start)
    text = path.read_text(encoding="utf-8")
    assert "<!-- 100 -->" in text and "mathdefault" not in text  # names of ticks
    labels = ("training 20", "validation 35", "forward 35")
    names = [f"{run} {label}" for run in ("other &amp; &lt;another&gt;", "run") for label in labels]
    for expected in (*names, "Lowest validation perplexity: 30 after 2 epochs (other &amp;"):
        assert f"<!-- {expected}" in text


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        write_metrics(tmp_path, 0, training=math.nan, validation=math.inf)
        with pytest.raises(ValueError, match=f"{folder}: there is no finite perplexity"):
            read_run(str(folder))
