"""The comparison, on data of a few sentences."""

import json
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
from allennlp_elmo_plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.benchmark.data_folder import find_tasks
from allennlp_elmo_plugin.benchmark.task import TASKS
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER, benchmark
from allennlp_elmo_plugin.files.locks import locked_folder
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.version import __version__
from tests.support.task_data import TASK_DATA, write_task_data
from tests.support.testing import write_random_elmo

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
    assert "Trained to the last epoch" in printed
    assert "2 runs of ner_made baseline, 2 of ner_made + ELMo, 2 of sst5 baseline" in printed
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
    assert "Trained to the last epoch" not in table
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


@pytest.mark.parametrize(
    "change, message",
    [
        ("elmo", "benchmark: --elmo changed"),
        ("overrides", r"benchmark: config of sst5, baseline, config of sst5, \+ ELMo changed"),
        ("data", "benchmark: data of sst5 changed"),
    ],
)
def test_other_settings_are_not_mixed(
    change: str, message: str, elmo: str, data: Path, tmp_path: Path
) -> None:
    overrides = ONE_EPOCH
    benchmark(["sst5"], elmo, data, tmp_path / "out", 1, overrides=overrides)
    if change == "elmo":
        write_random_elmo(elmo, seed=1)
    elif change == "data":
        _add_a_tree(data)
    else:
        overrides = json.dumps({"trainer.num_epochs": 2})
    with pytest.raises(ConfigurationError, match=message):
        benchmark(["sst5"], elmo, data, tmp_path / "out", 1, overrides=overrides)


def _add_a_tree(data: Path, split: str = "dev") -> None:
    with (data / "sst5" / f"{split}.txt").open("a", encoding="utf-8") as file:
        file.write("(3 (2 Not) (3 bad))\n")


def _copy_configs(tmp_path: Path, **texts: str) -> Path:
    """A copy of the configs, with other texts in some of them."""
    shutil.copytree(CONFIG_FOLDER.parent, tmp_path / "my_configs")
    for name, text in texts.items():
        path = tmp_path / "my_configs" / "benchmark" / f"{name}.jsonnet"
        path.write_text(text, encoding="utf-8")
    return tmp_path / "my_configs" / "benchmark"


def test_two_elmos_are_compared(elmo: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_random_elmo(tmp_path / "other", seed=1)
    plain, with_elmo = (
        (CONFIG_FOLDER / f"{name}.jsonnet").read_text(encoding="utf-8")
        for name in ("sst5", "sst5_elmo")
    )
    with_elmo = with_elmo.replace("'sst5.jsonnet'", "'plain.jsonnet'")
    library = "import 'elmo.libsonnet'"
    with_other = with_elmo.replace(library, f"({library}) {{ name:: '{tmp_path}/other' }}")
    assert with_other != with_elmo
    configs = _copy_configs(tmp_path, plain=plain, sst5=with_other, sst5_elmo=with_elmo)
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1, configs, ONE_EPOCH)
    benchmark(*arguments)
    runs = tmp_path / "out" / "runs" / "sst5"
    losses = [
        _read(runs / f"{model}-1.json")["allennlp_metrics"]["loss"]
        for model in ("baseline", "elmo")
    ]
    assert losses[0] != losses[1]
    write_random_elmo(tmp_path / "other", seed=2)
    with pytest.raises(ConfigurationError, match="benchmark: config of sst5, baseline changed"):
        benchmark(*arguments)


def test_a_config_without_elmo(elmo: str, data: Path, tmp_path: Path) -> None:
    baseline = (CONFIG_FOLDER / "sst5.jsonnet").read_text(encoding="utf-8")
    configs = _copy_configs(tmp_path, sst5_elmo=baseline)
    with pytest.raises(ConfigurationError, match="sst5_elmo.jsonnet has no ELMo in it"):
        benchmark(["sst5"], elmo, data, tmp_path / "out", 1, configs)


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


def test_a_failed_start_leaves_the_folder_free(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1)
    with pytest.raises(ConfigurationError, match="begins with no known kind"):
        benchmark(["sst6"], *arguments[1:])
    with pytest.raises(Exception, match="unexpected_thing"):
        benchmark(*arguments, overrides='{"model.unexpected_thing": 1}')
    write_random_elmo(elmo, seed=1)
    assert "| sst5 | accuracy |" in benchmark(*arguments, overrides=ONE_EPOCH)


def test_a_bad_elmo_is_noticed_before_training(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (data, tmp_path / "out", 1)
    weights = Path(elmo, "weights.hdf5")
    weights.rename(tmp_path / "weights.hdf5")
    with pytest.raises(FileNotFoundError, match="weights.hdf5"):
        benchmark(["sst5"], elmo, *arguments, overrides=ONE_EPOCH)
    assert not (tmp_path / "out" / "runs").exists()
    for name, message in (
        ("", "--elmo is empty"),
        (f"{elmo}/options.json", "needs its weight_file: there is no weights.hdf5 beside it"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            benchmark(["sst5"], name, *arguments)
    with pytest.raises(FileNotFoundError, match="nowhere.*there is no .*; nor is it one of"):
        benchmark(["sst5"], "nowhere", *arguments)
    (tmp_path / "weights.hdf5").rename(weights)
    Path(elmo, "options.json").write_text('{"lstm": {}}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="--elmo .*options.json"):
        benchmark(["sst5"], elmo, *arguments)


def test_a_baseline_goes_with_another_elmo(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1)
    benchmark(*arguments, overrides=ONE_EPOCH)
    runs = tmp_path / "out" / "runs" / "sst5"
    (runs / "elmo-1.json").unlink()
    before = (runs / "baseline-1.json").stat().st_mtime_ns
    write_random_elmo(elmo, seed=1, projection_dim=7)
    assert "| sst5 | accuracy |" in benchmark(*arguments, overrides=ONE_EPOCH)
    assert (runs / "baseline-1.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "overrides, message",
    [
        ("epochs=1", "--overrides epochs=1: .*not a binary operator"),
        ("[]", r"--overrides \[\]: it must be a JSON object"),
        ('{"random_seed": 5}', "the seeds are those of --seeds"),
        (
            '{"model.text_field_embedder.token_embedders.elmo.dropout": 0}',
            "sst5.jsonnet with --overrides, which must fit both models: .*elmo.dropout",
        ),
        ('{"trainer.num_epoch": 1}', "no key 'num_epoch'; did you mean num_epochs?"),
        ('{"trainer.zzz": 1}', "sst5.jsonnet with --overrides, trainer: .*'zzz'; remove it"),
        ('{"trainer": 1}', "trainer: it must be an object"),
        ('{"test_data_path": "x"}', "the test_data_path 'x', but the data must be those of --data"),
    ],
)
def test_bad_overrides(overrides: str, message: str, elmo: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        benchmark(["sst5"], elmo, data, tmp_path / "out", 1, overrides=overrides)


def test_bad_configs(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1, tmp_path / "configs")
    with pytest.raises(FileNotFoundError, match="--configs .*configs: there is no .*sst5.jsonnet"):
        benchmark(*arguments)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "sst5.jsonnet").write_text("{ a: b }", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="sst5.jsonnet: .*Unknown variable: b"):
        benchmark(*arguments)


def test_the_same_elmo_and_data_in_another_place(elmo: str, data: Path, tmp_path: Path) -> None:
    benchmark(["sst5"], elmo, data, tmp_path / "out", 1, overrides=ONE_EPOCH)
    shutil.move(elmo, tmp_path / "moved_elmo")
    shutil.move(str(data), tmp_path / "moved")
    arguments: Any = (["sst5"], str(tmp_path / "moved_elmo"), tmp_path / "moved", tmp_path / "out")
    assert "| sst5 | accuracy |" in benchmark(*arguments, seeds=1, overrides=ONE_EPOCH)


def test_only_seeds_of_both_models_count(elmo: str, data: Path, tmp_path: Path) -> None:
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1)
    table = benchmark(*arguments, overrides=ONE_EPOCH)
    runs = tmp_path / "out" / "runs" / "sst5"
    third = {**_read(runs / "baseline-1.json"), "seed": 3, "score": 100.0}
    (runs / "baseline-3.json").write_text(json.dumps(third), encoding="utf-8")
    assert benchmark(*arguments, overrides=ONE_EPOCH) == table


def test_one_at_a_time(elmo: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with locked_folder(tmp_path / "out", ConfigurationError("in use")):
        (tmp_path / "out" / "settings.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ConfigurationError, match="another elmo-benchmark works there"):
            benchmark(["sst5"], elmo, data, tmp_path / "out")


@pytest.mark.parametrize(
    "name, message", [("out", "a file, where"), ("out/thesis", "no benchmark")]
)
def test_output_is_something_else(
    name: str, message: str, elmo: str, data: Path, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(ConfigurationError, match=message):
        benchmark(["sst5"], elmo, data, tmp_path / "out")
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "task, split, text",
    [
        ("ner_made", "train", "-DOCSTART- -X- -X- O\n\n"),
        ("snli", "test", '{"sentence1": "a", "sentence2": "b", "gold_label": "-"}\n'),
        # Valid in NER's IOB1, and of the right format
        ("chunking", "dev", "It PRP B-NP\n\nIt PRP I-NP\n"),
    ],
)
def test_nothing_to_train_or_test_with(
    task: str, split: str, text: str, elmo: str, data: Path, tmp_path: Path
) -> None:
    (file,) = (data / task).glob(f"{split}*")
    file.write_text(text, encoding="utf-8")
    message = r"AllenNLP's reader '\w+' (finds nothing|stops after 1 instances: InvalidTag)"
    with pytest.raises(ConfigurationError, match=f"{file}: {message}"):
        benchmark([task], elmo, data, tmp_path / "out", 1, overrides=ONE_EPOCH)
    assert not (tmp_path / "out" / "runs").exists()


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

    # Other vectors need other results; those of the baseline can stay.
    vectors.write_text(vectors.read_text(encoding="utf-8").replace("film", "Film"), "utf-8")
    with pytest.raises(ConfigurationError, match="benchmark: --vectors changed"):
        benchmark(*arguments, vectors)
    with pytest.raises(ConfigurationError, match="benchmark: --vectors, config of sst5, baseline"):
        benchmark(*arguments)
    for model in ("vectors", "elmo"):
        (runs / f"{model}-1.json").unlink()
    before = (runs / "baseline-1.json").stat().st_mtime_ns
    moved = vectors.rename(tmp_path / "moved.txt")
    benchmark(*arguments, moved)
    assert (runs / "baseline-1.json").stat().st_mtime_ns == before
    assert "1 of 1" not in benchmark(*arguments, moved)


def test_the_environment_gives_no_word_vectors(
    elmo: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = find_tasks(data, ["sst5"])
    configuration = Configuration(tasks, elmo, CONFIG_FOLDER, "{}")
    expected = configuration.params("sst5", "baseline", 1).as_dict(quiet=True)
    monkeypatch.setenv("VECTORS", "vectors.txt")
    monkeypatch.setenv("WORD_DIM", "7")
    assert configuration.params("sst5", "baseline", 1).as_dict(quiet=True) == expected


def test_word_vectors_of_reviews_are_not_trained(elmo: str, data: Path, vectors: Path) -> None:
    configuration = Configuration(
        find_tasks(data, ["imdb"]), elmo, CONFIG_FOLDER, "{}", vectors=vectors
    )
    trained = {}
    for model in configuration.models:
        settings = configuration.params("imdb", model, 1).as_dict(quiet=True)["model"]
        trained[model] = settings["text_field_embedder"]["token_embedders"]["tokens"]["trainable"]
    assert trained == {"baseline": True, "vectors": False, "elmo": False}


def test_configs_without_word_vectors(elmo: str, data: Path, vectors: Path, tmp_path: Path) -> None:
    small = (CONFIG_FOLDER / "small.libsonnet").read_text(encoding="utf-8")
    configs = _copy_configs(tmp_path)
    (configs / "small.libsonnet").write_text(
        small.replace("variable('VECTORS', '')", "''"), encoding="utf-8"
    )
    arguments: Any = (["sst5"], elmo, data, tmp_path / "out", 1, configs, ONE_EPOCH)
    with pytest.raises(ConfigurationError, match="sst5.jsonnet doesn't use the variable VECTORS"):
        benchmark(*arguments, vectors)
    with pytest.raises(ConfigurationError, match="--vectors .*no such file"):
        benchmark(*arguments, tmp_path / "missing.txt")
    assert not (tmp_path / "out").exists()
