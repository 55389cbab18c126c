"""`allennlp elmo-benchmark`; tests/benchmark has the trainings, tables and pictures."""

import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from allennlp.commands import main

from allennlp_elmo_plugin.benchmark import report
from allennlp_elmo_plugin.benchmark import run as run_module
from allennlp_elmo_plugin.files.locks import open_locked
from tests.conftest import import_plugins_once
from tests.support.task_data import write_task_data
from tests.support.testing import refused, write_random_elmo

LINE = "elmo-benchmark --elmo elmo --data data --output out"
Runs = List[Tuple[str, Path]]


@pytest.fixture(autouse=True)
def folder(run: Any) -> None:
    import_plugins_once()
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    write_task_data(Path("data"))
    Path("vectors").write_text("the 0 1 2\nfilm 1 1 2\n", encoding="utf-8")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The models and folders of trainings, which take no time and have made-up results."""
    calls: Runs = []

    def train(kind: str, params: Any, folder: Path, vectors: Any) -> Dict[str, Any]:
        assert kind in folder.parent.name and not list(folder.iterdir())
        calls.append((folder.name, folder))
        score = 50.0 + len(str(params.as_dict(quiet=True))) % 40 + params["random_seed"]
        return {
            **{"score": score, "curve": [score], "layer_weights": [], "epochs": 3},
            "allennlp_metrics": {"accuracy": score / 100, "f1-measure-overall": score / 100},
            **{"stopped_early": True, "trained_parameters": 7, "seconds": 1.0, "machine": "none"},
        }

    monkeypatch.setattr(run_module, "run", train)
    monkeypatch.setattr(report, "draw", lambda output: None)
    return calls


def of(model: str, seed: int = 1, task: str = "sst5") -> Path:
    return Path("out/runs", task, f"{model}-{seed}.json")


def test_real_trainings(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    overrides = json.dumps({"trainer.num_epochs": 2})
    printed = run(f"{LINE} --tasks 'sst5, ner' --seeds 1 -o", overrides)
    assert "| sst5 | accuracy |" in printed and "| ner_made | f1 |" in printed
    assert Path("out/results.md").read_text(encoding="utf-8") in printed
    rows = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in rows] == ["ner_made", "sst5"]
    for row in rows:
        (weights,) = row["layer_weights"]
        assert len(weights) == 3 and sum(weights) == pytest.approx(1)
        for model in ("baseline", "elmo"):
            result = json.loads(of(model, 1, row["task"]).read_text("utf-8"))
            assert row[model]["mean"] == result["score"] and result["epochs"] == 2
            assert (result["task"], result["model"], result["seed"]) == (row["task"], model, 1)
    for name in ("scores", "layer_weights"):
        assert Path(f"out/{name}.png").read_bytes()[:4] == b"\x89PNG"
    # Nothing is left of the trainings.
    assert all(path.suffix == ".json" for path in Path("out/runs").glob("*/*"))


def test_continues_after_a_kill(
    runs: Runs, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    quick = run_module.run

    def killed(*arguments: Any) -> Dict[str, Any]:
        if len(runs) == 1:
            (arguments[2] / "half.th").touch()
            raise KeyboardInterrupt
        return quick(*arguments)

    line = f"{LINE} --tasks sst5 --seeds 2"
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(run_module, "run", killed)
        run(line)
    assert (
        capsys.readouterr().err.splitlines()[-1] == f"interrupted; continue with: allennlp {line}"
    )
    before = of("elmo").read_bytes()
    run(line)
    names = ["elmo-1", "baseline-1", "elmo-2", "baseline-2"]
    assert [name for name, _ in runs] == names and of("elmo").read_bytes() == before
    # More seeds and tasks later; nothing that is done is done again.
    line = f"{LINE} --tasks sst5,ner"
    table = run(line)
    assert [name for name, _ in runs[4:6]] == ["elmo-3", "baseline-3"] and len(runs) == 12
    assert "| sst5 |" in table and "| ner_made |" in table
    assert run(line) == table and len(runs) == 12


def test_shows_how_far_it_is(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["allennlp", *f"{LINE} --tasks sst5 --seeds 1".split()])
    main()
    *before, line = capsys.readouterr().err.splitlines()
    assert any(re.match(r"sst5 baseline, seed 1:  50%.* 1/2 ", each) for each in before)
    score = json.loads(of("baseline").read_text("utf-8"))["score"]
    pattern = rf"sst5 baseline, seed 1: 100%\|#+\| 2/2 .*, {score:.2f} after 3 epochs\]"
    assert re.fullmatch(pattern, line)


def test_results_of_another_benchmark_are_refused(runs: Runs, run: Any, capsys: Any) -> None:
    line = f"{LINE} --tasks sst5 --seeds 1"
    table = run(line)
    done = json.loads(of("baseline").read_text("utf-8"))
    # A seed that not all models have does not count.
    of("baseline", 3).write_text(json.dumps({**done, "seed": 3, "score": 99.0}), encoding="utf-8")
    assert run(line) == table and len(runs) == 2
    write_random_elmo("elmo", seed=1)
    message = "runs/sst5/elmo-1.json is not of this benchmark: elmo changed"
    assert message in refused(capsys, *line.split())
    of("elmo").unlink()
    run(line)
    assert [name for name, _ in runs[2:]] == ["elmo-1"]
    other = refused(capsys, *line.split(), "-o", '{"trainer.num_epochs": 2}')
    assert "baseline-1.json is not of this benchmark: config changed" in other
    Path("data/sst5/dev.txt").write_text("(3 fine)\n", encoding="utf-8")
    assert "baseline-1.json is not of this benchmark: data" in refused(capsys, *line.split())
    run(f"{LINE} --tasks imdb --seeds 1")  # Other tasks are not concerned.


def test_word_vectors(runs: Runs, run: Any, capsys: Any) -> None:
    line = f"{LINE} --tasks sst5 --seeds 1"
    table = run(f"{line} --vectors vectors")
    assert "| word vectors | + ELMo | delta to baseline | delta to word vectors |" in table
    assert [name for name, _ in runs] == ["elmo-1", "vectors-1", "baseline-1"]
    # Without them, words have another size.
    assert "baseline-1.json is not of this benchmark: config" in refused(capsys, *line.split())


def test_another_benchmark_in_the_folder(runs: Runs, capsys: Any) -> None:
    Path("out/runs").mkdir(parents=True)
    with open_locked(Path("out/.run.lock")):
        message = refused(capsys, *f"{LINE} --tasks sst5".split())
    assert "another process is using it" in message and not runs
