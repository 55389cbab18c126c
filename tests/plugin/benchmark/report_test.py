import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.benchmark.report import (
    check_output,
    draw,
    draw_bars,
    file_of,
    markdown,
    read_runs,
    summarize,
    write_tables,
)


def some(model, *scores, **changes):
    """The runs of seeds 1, 2 and so on."""
    return [
        {
            **{"task": "ner_x", "model": model, "seed": seed, "score": score},
            **{"layer_weights": [], "epochs": seed + 1, "seconds": 6000.0 * seed},
            **{"trained_parameters": 7, "machine": "A machine, 2 cores", **changes},
        }
        for seed, score in enumerate(scores, start=1)
    ]


def two_models(*of_elmo, **changes):
    return {
        ("ner_x", "baseline"): some("baseline", 40.0, 42.0),
        ("ner_x", "elmo"): some("elmo", *of_elmo, **changes),
    }


def test_a_row_has_means_and_deviations_over_the_seeds_that_all_models_have():
    runs = two_models(44.0, 44.0, 90.0, layer_weights=[[0.25, 0.75]])
    runs["ner_x", "elmo"][0]["layer_weights"] = [[0.75, 0.25]]
    runs["ner_y", "baseline"] = some("baseline", 1.0)
    runs["ner_z", "baseline"], runs["ner_z", "elmo"] = runs["ner_x", "baseline"], []
    (row,) = summarize(runs)
    assert row.pop("baseline") == {
        **{"mean": 41, "std": pytest.approx(2**0.5), "seeds": [1, 2]},
        **{"seconds": 9000, "epochs": 2.5, "trained_parameters": 7},
    }
    elmo = row.pop("elmo")
    assert (elmo["mean"], elmo["std"], elmo["seeds"]) == (44, 0, [1, 2])
    # The standard error is the root of 2 / 2 + 0 / 2.
    error = {"standard_error": pytest.approx(1), "beyond_two_standard_errors": True}
    assert row == {
        **{"task": "ner_x", "score_name": "f1", "allennlp_metric": "f1-measure-overall"},
        **{"paper_delta": 2.06, "machines": ["A machine, 2 cores"], "layer_weights": [[0.5, 0.5]]},
        **{"deltas": {"baseline": {"mean": 3, **error}}, "delta": 3},
    }


def test_tables():
    lines = markdown(summarize(two_models(44.0, 44.0))).splitlines()
    titles = "baseline | + ELMo | delta | paper's delta | seeds | time a run"
    assert lines[:2] == [f"| task | score (test) | {titles} |", "|" + "---|" * 8]
    cells = "41.00 ± 1.41 | 44.00 ± 0.00 | **+3.00** ± 1.00 | +2.06 | 2 | 150.0 / 150.0 min"
    assert lines[2] == f"| ner_x | f1 | {cells} |"
    # 2 is within twice the root of 2 / 2 + 2 / 2.
    runs = two_models(42.0, 44.0)
    runs["ner_x", "vectors"] = some("vectors", 41.0, 42.0, 43.0)
    runs["chunking", "baseline"] = some("baseline", 40.0)
    runs["chunking", "elmo"] = some("elmo", 39.0)
    table = markdown(summarize(runs))
    for line in (
        "| baseline | word vectors | + ELMo | delta to baseline | delta to word vectors |",
        "| 41.50 ± 0.71 | 43.00 ± 1.41 | +2.00 ± 1.41 | +1.50 ± 1.12 | +2.06 | 2 |",
        "| 40.00 |  | 39.00 | -1.00 |  |  | 1 | 100.0 / 100.0 min |",
        "Time: baseline / word vectors / with ELMo, whose runs",
        "Machine: A machine, 2 cores.",
    ):
        assert line in table


def test_no_table_without_a_finished_task():
    rows = summarize({("ner_x", "elmo"): some("elmo", 44.0)})
    assert markdown(rows) == "No task has been trained without and with ELMo yet.\n"


@pytest.mark.parametrize("mixes", [[[0.2, 0.8], [0.3, 0.7]], []])
def test_files(mixes, tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    runs = two_models(44.0, 44.0, layer_weights=mixes)
    (tmp_path / "runs" / "ner_x").mkdir(parents=True)
    for run in (run for runs_of_model in runs.values() for run in runs_of_model):
        file = file_of(tmp_path, "ner_x", run["model"], run["seed"])
        file.write_text(json.dumps(run), encoding="utf-8")
    table = write_tables(tmp_path)
    assert table == markdown(summarize(runs))
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == table
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == summarize(runs)
    drawn = []

    def texts(figure, path, **settings):
        (axes,) = figure.axes
        names = axes.get_yticklabels() if "weights" in str(path) else axes.get_xticklabels()
        shown = names, axes.get_legend().get_texts(), axes.texts
        drawn.append([[text.get_text() for text in labels] for labels in shown])
        if "weights" in str(path):  # Each part starts where the one before ends.
            assert [bar.get_x() for bar in axes.patches] == pytest.approx([0, 0, 0.2, 0.3])
        Path(path).touch()

    monkeypatch.setattr(figures.Figure, "savefig", texts)
    draw(tmp_path)
    scores = [["ner_x\nf1"], ["baseline", "baseline + ELMo"], ["41.0", "44.0"]]
    weights = [
        ["ner_x", "ner_x, mix 2"],
        ["token layer", "LSTM 1"],
        ["0.20", "0.30", "0.80", "0.70"],
    ]
    assert drawn == [scores, weights][: 1 + len(mixes)]
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["layer_weights.png", "scores.png"][-len(drawn) :]


def test_bars_are_side_by_side():
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    values, errors = {"x": [1.0, None], "y": [3.0, 4.0]}, {"x": [0.5, None], "y": [0, 1]}
    draw_bars(axes, ["a", "b"], values, errors)
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx((x, 0.45)) for x in (-0.45, 0.55, 0, 1)]
    assert [text.get_text() for text in axes.texts] == ["1.0", "", "3.0", "4.0"]


def write_run(output, task, seed, **digests):
    run = {"task": task, "model": "elmo", "seed": seed, "digests": digests}
    file = file_of(output, task, "elmo", seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run), encoding="utf-8")
    return run


def test_runs_of_other_parameters_or_data_are_refused(tmp_path):
    now = {"config": "1", "data": "2"}
    configuration = SimpleNamespace(digests=lambda task, model: now, elmo_digest=lambda: "5")
    check_output(tmp_path / "new", configuration, ["sst5"])
    first = write_run(tmp_path, "sst5", 1, **now)
    other = write_run(tmp_path, "snli_cad/original", 1, config="3", data="4", elmo="5")
    (tmp_path / "results.md").touch()
    (tmp_path / ".run.lock").touch()
    check_output(tmp_path, configuration, ["sst5"])
    assert (tmp_path / "runs/sst5/elmo-1.json").exists()
    second = write_run(tmp_path, "sst5", 2, config="1")
    expected = {("snli_cad/original", "elmo"): [other], ("sst5", "elmo"): [first, second]}
    assert read_runs(tmp_path) == expected
    message = "sst5/elmo-2.json is not of this benchmark: data changed"
    with pytest.raises(ConfigurationError, match=message):
        check_output(tmp_path, configuration, ["sst5"])
    configuration.elmo_digest = lambda: "6"
    message = "snli_cad/original/elmo-1.json is not of this benchmark: elmo changed"
    with pytest.raises(ConfigurationError, match=message):
        check_output(tmp_path, configuration, ["ner"])
    (tmp_path / "runs").rename(tmp_path / "thesis")
    with pytest.raises(ConfigurationError, match="not empty, and no benchmark"):
        check_output(tmp_path, configuration, ["sst5"])
