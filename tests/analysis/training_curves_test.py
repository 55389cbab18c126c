import json
import math

import pytest

from allennlp_elmo_plugin.analysis.training_curves import draw_curves, read_run
from allennlp_elmo_plugin.text.vocabulary import write_vocabulary_folder
from tests.support.bilm_tf import OPTIONS


def write_metrics(folder, epoch, **perplexities):
    metrics = {f"{name}_perplexity": value for name, value in perplexities.items()}
    path = folder / f"metrics_epoch_{epoch}.json"
    path.write_text(json.dumps({"epoch": epoch, **metrics}), encoding="utf-8")


def test_a_figure_has_a_curve_for_each_perplexity_and_names_the_lowest(tmp_path):
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
    labels = ("training 20", "validation 30", "forward 35")
    names = [f"{run} {label}" for run in ("other &amp; &lt;another&gt;", "run") for label in labels]
    for expected in (*names, "Lowest validation perplexity: 30 after 2 epochs (other &amp;"):
        assert f"<!-- {expected}" in text


@pytest.mark.parametrize("n_words, n_axes", [(3, 1), (20_000, 2)])
def test_perplexities_of_samples_have_an_axis(n_words, n_axes, savefig, tmp_path):
    write_metrics(tmp_path, 0, training=5.0, validation=40.0)
    model = {"type": "bidirectional_lm", "options": OPTIONS["characters"], "num_samples": "auto"}
    (tmp_path / "config.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    words = ["</S>", "<S>", "<UNK>", *map(str, range(n_words))]
    write_vocabulary_folder(tmp_path / "vocabulary", words)
    draw_curves({"run": read_run(str(tmp_path))}, str(tmp_path / "curves.svg"))
    axes = savefig.call_args.args[0].axes
    assert len(axes) == n_axes and {*axes[0].get_xticks()} <= {0, 1, 2}
    assert axes[0].lines[-1].get_ydata() == [40] and axes[-1].lines[0].get_ydata() == [5]
    colours = [line.get_color() for ax in axes for line in ax.lines]
    assert len({*colours}) == 2


def test_what_is_no_run_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        write_metrics(tmp_path, 0, training=math.nan, validation=math.inf)
        with pytest.raises(ValueError, match=f"{folder}: there is no finite perplexity"):
            read_run(str(folder))
