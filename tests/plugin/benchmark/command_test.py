"""The command `allennlp elmo-benchmark`."""

import json
import re
from pathlib import Path

import pytest

from allennlp_elmo_plugin.files.locks import locked
from allennlp_elmo_plugin.plugin.benchmark import report
from allennlp_elmo_plugin.plugin.benchmark import run as run_module
from tests.support.testing import refused

pytestmark = pytest.mark.usefixtures("folder")
LINE = "elmo-benchmark --elmo elmo --data data --output new/out"


@pytest.fixture
def runs(monkeypatch):
    """The names of trainings, which take no time and have made-up results."""
    calls = []
    numbers = {"epochs": 3, "stopped_early": True, "trained_parameters": 7, "seconds": 1.0}

    def train(kind, params, folder, vectors):
        assert kind in folder.parent.name and not list(folder.iterdir())
        calls.append(folder.name)
        score = 50.0 + len(calls)
        metrics = {"accuracy": score / 100, "f1-measure-overall": score / 100}
        scores = {"score": score, "curve": [score], "allennlp_metrics": metrics}
        return {**scores, **numbers, "layer_weights": [], "machine": "none"}

    monkeypatch.setattr(run_module, "run", train)
    monkeypatch.setattr(report, "draw", lambda output: None)
    return calls


def of(model, seed=1, task="sst5"):
    return Path("new/out/runs", task, f"{model}-{seed}.json")


def test_real_trainings(run):
    pytest.importorskip("matplotlib")
    overrides = json.dumps({"trainer.num_epochs": 2})
    printed = run(f"{LINE} --tasks 'sst5, ner' --seeds 1 -o", overrides)
    assert "| sst5 | accuracy |" in printed and "| ner_made | f1 |" in printed
    assert Path("new/out/results.md").read_text(encoding="utf-8") in printed
    for row in json.loads(Path("new/out/results.json").read_text(encoding="utf-8")):
        assert len(row["layer_weights"][0]) == 3
        for model in ("baseline", "elmo"):
            result = json.loads(of(model, 1, row["task"]).read_text("utf-8"))
            assert row[model]["mean"] == result["score"] and result["epochs"] == 2
    for name in ("scores", "layer_weights"):
        assert Path(f"new/out/{name}.png").read_bytes()[:4] == b"\x89PNG"
    # Nothing is left of the trainings.
    assert all(path.suffix == ".json" for path in Path("new/out/runs").glob("*/*"))


def test_continues_after_a_kill(runs, run, monkeypatch, capsys):
    quick = run_module.run

    def killed(*arguments):
        if len(runs) == 1:
            (arguments[2] / "half.th").touch()
            raise KeyboardInterrupt
        return quick(*arguments)

    line = f"{LINE} --tasks sst5 --seeds 2"
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(run_module, "run", killed)
        run(line)
    *bars, shown = capsys.readouterr().err.splitlines()
    assert shown == f"interrupted; continue with: allennlp {line}"
    score = json.loads(of("elmo").read_text("utf-8"))["score"]
    pattern = rf"sst5 baseline, seed 1:  25%.* 1/4 .*, \+ ELMo {score:.2f} after 3 epochs\]"
    assert any(re.fullmatch(pattern, bar) for bar in bars)
    before = of("elmo").read_bytes()
    run(line)
    assert runs == ["elmo-1", "baseline-1", "elmo-2", "baseline-2"]
    assert of("elmo").read_bytes() == before
    # More seeds and tasks later; nothing that is done is done again.
    line = f"{LINE} --tasks sst5,ner"
    table = run(line)
    assert runs[4:6] == ["elmo-3", "baseline-3"] and len(runs) == 12
    assert "| sst5 |" in table and "| ner_made |" in table
    assert run(line) == table and len(runs) == 12


def test_results_of_others_stay(runs, run, capsys):
    line = f"{LINE} --tasks sst5 --seeds 1"
    run(f"{line} --vectors vectors.txt")
    assert runs == ["elmo-1", "vectors-1", "baseline-1"]
    assert "--tasks, --model/--elmo, --data, --output" in refused(capsys, "elmo-benchmark")
    # Without them, words have another size.
    assert "baseline-1.json is not of this benchmark: config" in refused(capsys, *line.split())
    line = f"{LINE} --tasks imdb --seeds 1"  # Other tasks are not concerned.
    with locked(Path("new/out/.run.lock")):
        assert "another process is using it" in refused(capsys, *line.split())
    run(line)
