import json
import math
from pathlib import Path

import pytest

from allennlp_elmo_plugin.plots.training_curves import draw_curves, read_run


def write_metrics(folder: Path, epoch: int, **perplexities: float) -> None:
    metrics = {f"{name}_perplexity": value for name, value in perplexities.items()}
    path = folder / f"metrics_epoch_{epoch}.json"
    path.write_text(json.dumps({"epoch": epoch, **metrics}), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fine-tuning of four epochs, of which the third diverged."""
    folder = tmp_path / "my_model"
    folder.mkdir()
    write_metrics(folder, 0, initial_validation=900.0, training=50.0, validation=40.0)
    write_metrics(folder, 1, training=30.0, validation=30.0, validation_forward=35.0)
    write_metrics(folder, 2, training=math.nan, validation=math.inf)
    write_metrics(folder, 3, training=20.0, validation=35.0)
    return folder


def test_finite_perplexities_are_read_with_the_epochs_trained(folder: Path) -> None:
    run = read_run(str(folder))
    assert run.name == str(folder)
    assert run.curves == {
        "training": [(0.5, 50), (1.5, 30), (3.5, 20)],
        "validation": [(0, 900), (1, 40), (2, 30), (4, 35)],
        "validation_forward": [(2, 35)],
    }


def test_a_figure_has_a_curve_for_each_perplexity_and_names_the_lowest(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    run = read_run(str(folder))
    for ending, start in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        path = folder / f"curves.{ending}"
        draw_curves([run, run._replace(name="other & <another> $_$")], str(path))
        content = path.read_bytes()
        assert content.startswith(start)
        if ending != "pdf":  # which has the time
            draw_curves([run, run._replace(name="other & <another> $_$")], str(path))
            assert path.read_bytes() == content
    text = (folder / "curves.svg").read_text(encoding="utf-8")
    assert "<!-- 100 -->" in text and "mathdefault" not in text  # names of ticks
    other = "other &amp; &lt;another&gt; $_$"
    curves = [
        f"{name} {label}"
        for name in (run.name, other)
        for label in ("training 20", "validation 35", "forward 35")
    ]
    for expected in (*curves, f"Lowest validation perplexity: 30 after 2 epochs ({run.name})"):
        assert f"<!-- {expected} -->" in text


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=f"{folder}: there is no finite perplexity"):
            read_run(str(folder))
    write_metrics(tmp_path, 0, training=math.nan, validation=math.inf)
    with pytest.raises(ValueError, match="there is no finite perplexity"):
        read_run(str(tmp_path))
