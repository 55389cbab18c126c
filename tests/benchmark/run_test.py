"""Trainings of each kind of task, on data of a few sentences."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import torch
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark import run as run_module
from allennlp_elmo_plugin.benchmark.cached_bilm import Vectors
from allennlp_elmo_plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.benchmark.run import run
from allennlp_elmo_plugin.benchmark.task import TASKS, find_tasks, kind_of
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER
from allennlp_elmo_plugin.version import __version__
from tests.support.task_data import TASK_DATA, write_task_data
from tests.support.testing import write_random_elmo

ONE_EPOCH = {"trainer.num_epochs": 1}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_plugins()
    monkeypatch.chdir(tmp_path)
    write_task_data(Path("data"))
    Path("elmo").mkdir()
    write_random_elmo("elmo")


def train(
    task: str, changes: Dict[str, Any] = ONE_EPOCH, seeds: int = 1, vectors: Optional[Path] = None
) -> Dict[str, List[Dict[str, Any]]]:
    """Return by model the results of the seeds."""
    tasks = find_tasks(Path("data"), [task])
    configuration = Configuration(tasks, "elmo", CONFIG_FOLDER, json.dumps(changes), vectors)
    results: Dict[str, List[Dict[str, Any]]] = {}
    kept = Vectors()
    for model in configuration.models:
        for seed in range(1, seeds + 1):
            Path("run").mkdir()
            params = configuration.params(task, model, seed)
            results.setdefault(model, []).append(run(kind_of(task), params, Path("run"), kept))
            shutil.rmtree("run")
    return results


@pytest.mark.parametrize("task", [name for name, _, _ in TASK_DATA])
def test_every_kind_of_task_is_trained_and_scored(task: str) -> None:
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    for model, (result,) in train(task).items():
        kind = TASKS[kind_of(task)]
        assert 0 <= result["score"] == result["scores"][kind.score_name] <= 100
        if task != "coref":
            ours = result["allennlp_metrics"][kind.allennlp_metric]
            assert result["score"] == pytest.approx(100 * ours, abs=0.01)
        assert not any(name.startswith("official") for name in result["allennlp_metrics"])
        n_mixes = 0 if model == "baseline" else 2 if task in ("snli", "squad") else 1
        assert len(result["layer_weights"]) == n_mixes
        for weights in result["layer_weights"]:
            assert len(weights) == 3 and sum(weights) == pytest.approx(1)
            assert max(weights) > min(weights)  # they have been trained
        assert (result["epochs"], len(result["curve"])) == (1, 1) and not result["stopped_early"]
        versions = f"torch {torch.__version__}, this package {__version__}"
        assert result["machine"].endswith(versions) and 0 < result["seconds"] < 300


def test_the_weights_of_the_best_epoch_are_tested() -> None:
    # So quick that it soon gets worse; validation and test data are the same here.
    changes = {"trainer.num_epochs": 30, "trainer.patience": 1, "trainer.optimizer.lr": 0.05}
    for (result,) in train("ner_made", changes).values():
        assert result["curve"][-1] < max(result["curve"])
        assert result["score"] == pytest.approx(max(result["curve"]))
        assert result["epochs"] < 30 and result["stopped_early"]


def test_the_test_set_is_scored_and_seeds_differ() -> None:
    Path("data/sst5/test.txt").write_text("(4 (2 Quite) (4 wonderful))\n", encoding="utf-8")
    results = train("sst5", seeds=2)
    for first, second in results.values():
        assert set(first["scores"]) == {"accuracy", "accuracy-4"}
        assert first["allennlp_metrics"]["loss"] != second["allennlp_metrics"]["loss"]
    n_parameters = {model: some[0]["trained_parameters"] for model, some in results.items()}
    # The language model is frozen; a larger encoder reads its three layers, mixed.
    assert 0 < n_parameters["elmo"] - n_parameters["baseline"] < 100_000


def test_words_start_from_given_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {word: [float(i)] * 60 for i, word in enumerate(("the", "film", "is", "not", "bad"))}
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in given.items()]
    Path("vectors.txt").write_text("".join(lines), encoding="utf-8")
    embeddings = []

    def watching(model: Any, vectors: Vectors) -> None:
        weight = model._text_field_embedder.token_embedder_tokens.weight
        index = model.vocab.get_token_index
        embeddings.append({word: weight[index(word)].tolist() for word in given})

    monkeypatch.setattr(run_module, "keep_vectors", watching)
    with Path("data/sst5/dev.txt").open("a", encoding="utf-8") as file:
        file.write("(3 (2 Not) (3 bad))\n")
    assert list(train("sst5", vectors=Path("vectors.txt"))) == ["baseline", "vectors", "elmo"]
    learned, *others = embeddings
    assert others == [given, given]
    # Learned words that are in the data once share one vector.
    assert learned["film"] != given["film"] and learned["bad"] == learned["not"]
    assert len(learned["bad"]) == 60
