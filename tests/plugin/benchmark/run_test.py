"""Trainings of each kind of task, on data of a few sentences."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import __version__
from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.plugin.benchmark.cached_bilm import Vectors
from allennlp_elmo_plugin.plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.plugin.benchmark.run import run
from allennlp_elmo_plugin.plugin.benchmark.task import TASKS, find_tasks, kind_of
from tests.support.task_data import TASK_DATA

ONE_EPOCH = {"trainer.num_epochs": 1}


pytestmark = pytest.mark.usefixtures("folder")


def train(task, changes=ONE_EPOCH, seed=1):
    """Return the results by model."""
    tasks = find_tasks(Path("data"), [task])
    configuration = Configuration(tasks, "elmo", CONFIGS / "benchmark", json.dumps(changes))
    results = {}
    for model in configuration.models:
        Path("run").mkdir()
        params = configuration.params(task, model, seed)
        params["evaluation"] = {"type": "official"}  # as in the configs of tasks
        results[model] = run(kind_of(task), params, Path("run"), Vectors())
        shutil.rmtree("run")
    return results


@pytest.mark.parametrize("task", [name for name, _, _ in TASK_DATA])
def test_every_kind_of_task_is_trained_and_scored(task, monkeypatch):
    if task == "srl" and shutil.which("perl") is None:
        pytest.skip("srl-eval.pl needs perl")
    monkeypatch.setattr("allennlp.training.metrics.EvalbBracketingScorer.__call__", None)  # in C
    for model, result in train(task).items():
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


def test_a_metric_that_the_model_lacks_is_found_before_training():
    with pytest.raises(ConfigurationError, match="ner: .*'f1-measure-overall'; of a crf_tagger, s"):
        train("ner_made", {"model.calculate_span_f1": False, **ONE_EPOCH})


def test_the_weights_of_the_best_epoch_are_tested():
    # So quick that it soon gets worse; validation and test data are the same here.
    changes = {"trainer.num_epochs": 30, "trainer.patience": 1, "trainer.optimizer.lr": 0.05}
    for result in train("ner_made", changes).values():
        assert result["curve"][-1] < max(result["curve"])
        assert result["score"] == pytest.approx(max(result["curve"]))
        assert result["epochs"] < 30 and result["stopped_early"]


def test_the_test_set_is_scored_and_seeds_differ():
    Path("data/sst5/test.txt").write_text("(4 (2 Quite) (4 wonderful))\n", encoding="utf-8")
    first, second = train("sst5", seed=1), train("sst5", seed=2)
    for model in first:
        assert set(first[model]["scores"]) == {"accuracy", "accuracy-4"}
        losses = [results[model]["allennlp_metrics"]["loss"] for results in (first, second)]
        assert losses[0] != losses[1]
    # The language model is frozen; a larger encoder reads its three layers, mixed.
    n_parameters = {model: first[model]["trained_parameters"] for model in first}
    assert 0 < n_parameters["elmo"] - n_parameters["baseline"] < 100_000
