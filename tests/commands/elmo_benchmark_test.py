"""The command; tests/benchmark has the trainings, tables and pictures."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark import report
from allennlp_elmo_plugin.benchmark import run as run_module
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER, benchmark
from allennlp_elmo_plugin.files.locks import locked_folder
from tests.support.task_data import write_task_data
from tests.support.testing import refused, write_random_elmo

Runs = List[Tuple[str, Path]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_plugins()
    monkeypatch.chdir(tmp_path)
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    write_task_data(Path("data"))
    lines = [f"{word} {number} 1 2\n" for number, word in enumerate(("the", "film"))]
    Path("vectors.txt").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The models and folders of trainings, which take no time and have made-up results."""
    calls: Runs = []

    def run(kind: str, params: Any, folder: Path, vectors: Any) -> Dict[str, Any]:
        assert kind in folder.parent.name and not list(folder.iterdir())
        calls.append((folder.name, folder))
        score = 50.0 + len(str(params.as_dict(quiet=True))) % 40 + params["random_seed"]
        metrics = {"accuracy": score / 100, "f1-measure-overall": score / 100}
        return {
            "score": score,
            "allennlp_metrics": metrics,
            "curve": [score],
            "layer_weights": [],
            "epochs": 3,
            "stopped_early": True,
            "trained_parameters": 7,
            "seconds": 1.0,
            "machine": "none",
        }

    monkeypatch.setattr(run_module, "run", run)
    monkeypatch.setattr(report, "draw", lambda output: None)
    return calls


def go(*tasks: str, output: str = "out", **changes: Any) -> str:
    given = {"seeds": 1, "elmo": "elmo", "data": Path("data"), **changes}
    return benchmark(list(tasks or ["sst5"]), output=Path(output), **given)


def of(model: str, seed: int = 1, task: str = "sst5") -> Path:
    return Path("out/runs", task, f"{model}-{seed}.json")


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With real trainings."""
    pytest.importorskip("matplotlib")
    arguments = ["--tasks", "sst5, ner", "--elmo", "elmo", "--data", "data", "--seeds", "1"]
    arguments += ["--output", "out", "-o", json.dumps({"trainer.num_epochs": 2})]
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-benchmark", *arguments])
    main()
    printed, progress = capsys.readouterr()
    # Without a terminal, a line for each training.
    assert re.findall(r"^(\d) of 4: (.*), seed 1: [\d.]+ after 2 epochs", progress, re.M) == [
        ("1", "sst5 + ELMo"),
        ("2", "sst5 baseline"),
        ("3", "ner_made + ELMo"),
        ("4", "ner_made baseline"),
    ]
    assert len(progress.splitlines()) == 4 and "about 0 min left" in progress
    assert "| sst5 | accuracy |" in printed and "| ner_made | f1 |" in printed
    assert Path("out/results.md").read_text(encoding="utf-8") in printed
    rows = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    assert [row["task"] for row in rows] == ["ner_made", "sst5"]
    for row in rows:
        (weights,) = row["layer_weights"]
        assert len(weights) == 3 and sum(weights) == pytest.approx(1)
        scores = [
            json.loads(of(model, 1, row["task"]).read_text("utf-8"))["score"]
            for model in ("baseline", "elmo")
        ]
        assert [row["baseline"]["mean"], row["elmo"]["mean"]] == scores
    for name in ("scores", "curves", "layer_weights"):
        assert Path(f"out/{name}.png").read_bytes()[:4] == b"\x89PNG"
    # Nothing is left of the trainings.
    assert all(path.suffix == ".json" for path in Path("out/runs").glob("*/*"))


def test_goes_on_after_a_kill(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = run_module.run

    def killed(*arguments: Any) -> Dict[str, Any]:
        if len(runs) == 1:
            (arguments[2] / "half.th").touch()
            raise KeyboardInterrupt
        return quick(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            go(seeds=2)
    before = of("elmo").read_bytes()
    go(seeds=2)
    names = ["elmo-1", "baseline-1", "elmo-2", "baseline-2"]
    assert [name for name, _ in runs] == names and of("elmo").read_bytes() == before
    # More seeds and tasks later; nothing that is done is done again.
    table = go("sst5", "ner", seeds=3)
    assert [name for name, _ in runs[4:6]] == ["elmo-3", "baseline-3"] and len(runs) == 12
    assert "| sst5 |" in table and "| ner_made |" in table
    assert go("sst5", "ner", seeds=3) == table and len(runs) == 12


def test_results_of_another_benchmark_are_refused(runs: Runs) -> None:
    table = go()
    run = json.loads(of("baseline").read_text("utf-8"))
    # A seed that not all models have does not count.
    of("baseline", 3).write_text(json.dumps({**run, "seed": 3, "score": 99.0}), encoding="utf-8")
    assert go() == table and len(runs) == 2
    write_random_elmo("elmo", seed=1)
    message = "runs/sst5/elmo-1.json is not of this benchmark: elmo changed (or an earlier version"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        go()
    of("elmo").unlink()
    go()
    assert [name for name, _ in runs[2:]] == ["elmo-1"]
    with pytest.raises(ConfigurationError, match="baseline-1.json is not .*: config changed"):
        go(overrides='{"trainer.num_epochs": 2}')
    Path("data/sst5/dev.txt").write_text("(3 fine)\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="baseline-1.json is not .*: data changed"):
        go()
    go("imdb")  # Other tasks are not concerned.
    # As the version before wrote it
    del run["digests"]
    of("baseline").write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="baseline-1.json is not .*: config, data changed"):
        go()


def test_word_vectors(runs: Runs) -> None:
    table = go(vectors=Path("vectors.txt"))
    assert "| word vectors | + ELMo | delta to baseline | delta to word vectors |" in table
    assert [name for name, _ in runs] == ["elmo-1", "vectors-1", "baseline-1"]
    with pytest.raises(ConfigurationError, match="baseline-1.json .*: config changed"):
        go()  # Without them, words have another size.
    Path("vectors.txt").write_text("the 4 5 6\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="vectors-1.json .*: vectors changed|elmo-1.json"):
        go(vectors=Path("vectors.txt"))
    for model in ("vectors", "elmo"):
        of(model).unlink()
    go(vectors=Path("vectors.txt"))
    assert [name for name, _ in runs[3:]] == ["elmo-1", "vectors-1"]


def test_other_uses_of_the_folder(runs: Runs) -> None:
    Path("out/runs").mkdir(parents=True)
    with locked_folder(Path("out"), ValueError("in use")):
        with pytest.raises(ConfigurationError, match="another elmo-benchmark works there"):
            go()
    Path("out/runs").rename("out/thesis")
    with pytest.raises(ConfigurationError, match="the folder is not empty, and no benchmark"):
        go()
    assert not runs


def test_without_matplotlib(runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    go()
    assert "No pictures: they need matplotlib" in caplog.text
    assert not list(Path("out").glob("*.png"))


@pytest.mark.parametrize(
    "change, message",
    [
        (["--tasks", "nothing"], "begins with no known kind of task"),
        (["--tasks", ","], "--tasks names no task"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--data", "missing"], "--data missing has no folder 'sst5'"),
        (["--elmo", "missing"], "--elmo missing: "),
        (["--elmo", "cut"], "weights.hdf5"),
        (["--configs", "missing"], "--configs missing: there is no missing/sst5.jsonnet"),
        (["--output", "data/sst5/dev.txt"], "dev.txt: File exists"),
        (["-o", "{"], "--overrides {"),
    ],
)
def test_mistakes(change: List[str], message: str, runs: Runs, capsys: Any) -> None:
    shutil.copytree("elmo", "cut")
    Path("cut", "weights.hdf5").write_bytes(b"")
    given = ["--tasks", "sst5", "--elmo", "elmo", "--data", "data", "--output", "out"]
    assert message in refused(capsys, "elmo-benchmark", *given, "--seeds", "1", *change)
    assert not runs and not Path("out").exists()


def test_how_to_continue(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    given = ["elmo-benchmark", "--tasks", "sst5", "--elmo", "elmo", "--data", "data"]
    monkeypatch.setattr(sys, "argv", ["allennlp", *given, "--output", "out"])
    monkeypatch.setattr(run_module, "run", stop)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.endswith("--data data --output out\n")
    assert CONFIG_FOLDER.name == "benchmark"
