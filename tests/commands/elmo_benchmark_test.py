"""The comparison, on data of a few sentences."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark import run as run_module
from allennlp_elmo_plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER, benchmark
from allennlp_elmo_plugin.files.locks import locked_folder
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.version import __version__
from tests.support.task_data import TASK_DATA, write_task_data
from tests.support.testing import refused, write_random_elmo

ONE_EPOCH = json.dumps({"trainer.num_epochs": 1})


@pytest.fixture(scope="module", autouse=True)
def _task_models() -> None:
    import_plugins()


@pytest.fixture
def elmo(tmp_path: Path) -> str:
    (tmp_path / "elmo").mkdir()
    write_random_elmo(tmp_path / "elmo")
    return str(tmp_path / "elmo")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_task_data(tmp_path / "data")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_command(
    elmo: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = ["--tasks", "sst5,ner", "--elmo", elmo, "--data", str(data), "--seeds", "2"]
    arguments += ["--output", str(tmp_path / "out"), "-o", json.dumps({"trainer.num_epochs": 2})]
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-benchmark", *arguments])
    main()
    printed, progress = capsys.readouterr()
    # Without a terminal, a line for each training.
    assert len(progress.splitlines()) == 8
    assert "8 of 8: ner_made baseline, seed 2" in progress and "about 0 min left" in progress
    assert "| sst5 | accuracy |" in printed and "| +3.30 | 2 |" in printed
    assert (tmp_path / "out" / "results.md").read_text(encoding="utf-8") in printed

    rows = _read(tmp_path / "out" / "results.json")
    assert [row["task"] for row in rows] == ["ner_made", "sst5"]
    for row in rows:
        results: Dict[str, List[Dict[str, Any]]] = {
            model: [
                _read(tmp_path / "out" / "runs" / row["task"] / f"{model}-{seed}.json")
                for seed in (1, 2)
            ]
            for model in ("baseline", "elmo")
        }
        for model, runs in results.items():
            first, second = (run["score"] for run in runs)
            assert row[model]["mean"] == pytest.approx((first + second) / 2)
            assert row[model]["std"] == pytest.approx(abs(first - second) / 2**0.5)
            losses = [run["allennlp_metrics"]["loss"] for run in runs]
            assert losses[0] != losses[1]
            assert all(len(run["curve"]) == 2 for run in runs)
        assert row["delta"] == pytest.approx(row["elmo"]["mean"] - row["baseline"]["mean"])
        (weights,) = row["layer_weights"]
        assert len(weights) == 3 and sum(weights) == pytest.approx(1)
        assert max(weights) > min(weights)  # they have been trained
        assert not results["baseline"][0]["layer_weights"]
    assert "ended at the last epoch" in printed
    assert "better: 2 of ner_made baseline, 2 of ner_made + ELMo, 2 of sst5 baseline" in printed
    pytest.importorskip("matplotlib")
    for name in ("scores", "curves", "layer_weights"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    # Nothing is left of the trainings.
    assert not [path for path in (tmp_path / "out" / "runs").rglob("*") if path.suffix == ".th"]


@pytest.mark.parametrize(
    "task", [name for name, _, _ in TASK_DATA if name not in ("sst5", "ner_made")]
)
def test_every_kind(task: str, elmo: str, data: Path, tmp_path: Path) -> None:
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    table = benchmark([task], elmo, data, tmp_path / "out", seeds=1, overrides=ONE_EPOCH)
    assert f"| {task} | {TASKS[task].score_name} |" in table
    for model in ("baseline", "elmo"):
        result = _read(tmp_path / "out" / "runs" / task / f"{model}-1.json")
        assert 0 <= result["score"] <= 100
        assert result["score"] == result["scores"][TASKS[task].score_name]
        ours = result["allennlp_metrics"][TASKS[task].allennlp_metric]
        if task != "coref":
            assert result["score"] == pytest.approx(100 * ours, abs=0.01)


def test_the_weights_of_the_best_epoch_are_tested(elmo: str, data: Path, tmp_path: Path) -> None:
    # So quick that it soon gets worse; validation and test data are the same here.
    changes = {"trainer.num_epochs": 30, "trainer.patience": 1, "trainer.optimizer.lr": 0.05}
    out = tmp_path / "out"
    table = benchmark(["ner"], elmo, data, out, seeds=1, overrides=json.dumps(changes))
    assert "ended at the last epoch" not in table
    for model in ("baseline", "elmo"):
        result = _read(out / "runs" / "ner_made" / f"{model}-1.json")
        assert result["curve"][-1] < max(result["curve"])
        assert result["score"] == pytest.approx(max(result["curve"]))
        assert result["epochs"] < 30 and result["stopped_early"]


def test_goes_on_after_a_kill(
    elmo: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, n_runs = run_module.run, []

    def killed(task: Any, params: Any, folder: Path, vectors: Any) -> Dict[str, Any]:
        n_runs.append(folder)
        if len(n_runs) == 2:
            (folder / "half.th").touch()
            raise KeyboardInterrupt
        return original(task, params, folder, vectors)

    monkeypatch.setattr(run_module, "run", killed)
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        benchmark(*arguments, seeds=1, overrides=ONE_EPOCH)
    first = (tmp_path / "out" / "runs" / "sst5" / "elmo-1.json").read_bytes()
    benchmark(*arguments, seeds=1, overrides=ONE_EPOCH)
    assert len(n_runs) == 3 and n_runs[1] == n_runs[2]
    assert (tmp_path / "out" / "runs" / "sst5" / "elmo-1.json").read_bytes() == first
    # More seeds and tasks later; nothing that is done is done again.
    benchmark(["sst5", "ner"], *arguments[1:], seeds=2, overrides=ONE_EPOCH)
    assert len(n_runs) == 9
    uninterrupted = benchmark(["sst5"], elmo, data, tmp_path / "other", 1, overrides=ONE_EPOCH)
    assert "| sst5 | accuracy |" in uninterrupted
    for model in ("baseline", "elmo"):
        name = Path("runs", "sst5", f"{model}-1.json")
        found, expected = _read(tmp_path / "out" / name), _read(tmp_path / "other" / name)
        assert found["allennlp_metrics"] == expected["allennlp_metrics"]


def _add_a_tree(data: Path, split: str = "dev") -> None:
    with (data / "sst5" / f"{split}.txt").open("a", encoding="utf-8") as file:
        file.write("(3 (2 Not) (3 bad))\n")


def test_vectors_are_computed_once_and_the_test_set_is_scored(
    elmo: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_sentences = []
    forward = ElmoBiLm.forward

    def counting(self: Any, inputs: Any, *arguments: Any) -> Any:
        n_sentences.append(len(inputs))
        return forward(self, inputs, *arguments)

    monkeypatch.setattr(ElmoBiLm, "forward", counting)
    (data / "sst5" / "test.txt").write_text("(4 (2 Quite) (4 wonderful))\n", encoding="utf-8")
    benchmark(["sst5"], elmo, data, tmp_path / "out", 2, overrides=ONE_EPOCH)
    trees = (data / "sst5" / "train.txt").read_text(encoding="utf-8").split("\n")
    assert sum(n_sentences) == len(set(filter(None, trees))) + 1
    for run in (tmp_path / "out" / "runs" / "sst5").iterdir():
        assert set(_read(run)["scores"]) == {"accuracy", "accuracy-4"}


WORDS = ("the", "film", "is", "not", "bad")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    lines = [f"{word} {' '.join([str(number)] * 60)}\n" for number, word in enumerate(WORDS)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_word_vectors(
    elmo: str, data: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = []
    original = run_module.keep_vectors

    def watching(model: Any, *arguments: Any) -> None:
        embedding = model._text_field_embedder.token_embedder_tokens.weight.detach().clone()
        index = model.vocab.get_token_index
        embeddings.append({word: embedding[index(word)].tolist() for word in WORDS})
        original(model, *arguments)

    monkeypatch.setattr(run_module, "keep_vectors", watching)
    _add_a_tree(data)
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1, CONFIG_FOLDER, ONE_EPOCH)
    table = benchmark(*arguments, vectors)
    assert "| word vectors | + ELMo | delta to baseline | delta to word vectors |" in table
    runs = tmp_path / "out" / "runs" / "sst5"
    results = {model: _read(runs / f"{model}-1.json") for model in ("baseline", "vectors", "elmo")}
    expected = {word: [float(number)] * 60 for number, word in enumerate(WORDS)}
    # With ELMo, with vectors, learned: of the same size. Learned words that are in the data once
    # share one vector.
    assert embeddings[0] == embeddings[1] == expected
    assert all(len(vector) == 60 for vector in embeddings[2].values())
    assert embeddings[2]["film"] != expected["film"]
    assert embeddings[2]["bad"] == embeddings[2]["not"]
    assert results["elmo"]["layer_weights"] and not results["vectors"]["layer_weights"]
    versions = f"torch {torch.__version__}, this package {__version__}"
    assert results["elmo"]["machine"].endswith(versions)
    (row,) = _read(tmp_path / "out" / "results.json")
    assert list(row["deltas"]) == ["baseline", "vectors"]


def test_results_of_another_benchmark_are_refused(elmo: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments: Any = (["sst5"], elmo, data, out, 1, CONFIG_FOLDER, ONE_EPOCH)
    table = benchmark(*arguments)
    (file, baseline) = (out / "runs" / "sst5" / f"{name}-1.json" for name in ("elmo", "baseline"))
    before = file.read_bytes()
    # A seed that not all models have does not count.
    third = {**_read(baseline), "seed": 3, "score": 100.0}
    baseline.with_name("baseline-3.json").write_text(json.dumps(third), encoding="utf-8")
    assert benchmark(*arguments) == table and file.read_bytes() == before
    message = "runs/sst5/elmo-1.json is not of this benchmark: {} changed (or"
    write_random_elmo(elmo, seed=1)
    with pytest.raises(ConfigurationError, match=re.escape(message.format("elmo"))):
        benchmark(*arguments)
    file.unlink()
    benchmark(*arguments)
    assert file.read_bytes() != before
    _add_a_tree(data)
    other = json.dumps({"trainer.num_epochs": 2})
    with pytest.raises(ConfigurationError, match="baseline-1.json .*: config, data changed"):
        benchmark(*arguments[:-1], other)
    # As the version before wrote it
    run = _read(file)
    del run["digests"]
    file.write_text(json.dumps(run), encoding="utf-8")
    baseline.unlink()
    baseline.with_name("baseline-3.json").unlink()
    with pytest.raises(ConfigurationError, match="elmo, vectors changed .or an earlier version"):
        benchmark(*arguments)


def test_other_uses_of_the_folder(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1, CONFIG_FOLDER, ONE_EPOCH)
    (tmp_path / "out" / "runs").mkdir(parents=True)
    with locked_folder(tmp_path / "out", ValueError("in use")):
        with pytest.raises(ConfigurationError, match="another elmo-benchmark works there"):
            benchmark(*arguments)
    (tmp_path / "out" / "runs").rename(tmp_path / "out" / "thesis")
    with pytest.raises(ConfigurationError, match="the folder is not empty, and no benchmark"):
        benchmark(*arguments)


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
def test_mistakes(
    change: List[str],
    message: str,
    elmo: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree("elmo", "cut")
    Path("cut", "weights.hdf5").write_bytes(b"")
    given = ["--tasks", "sst5", "--elmo", "elmo", "--data", "data", "--output", "out"]
    assert message in refused(capsys, "elmo-benchmark", *given, "--seeds", "1", *change)
    assert not list(tmp_path.glob("out/runs/*/*.json"))
