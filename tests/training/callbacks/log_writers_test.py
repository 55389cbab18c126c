"""The curves of TensorBoard and Weights & Biases, in runs that are killed and recovered."""

import math
import shutil
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy
import pytest
from allennlp.training.callbacks import TrainerCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from allennlp_elmo_plugin.training.callbacks.log_writers import _EventFile
from tests.support.training_runs import (
    losses,
    metrics,
    train,
    train_in_group,
    write_config,
    write_data,
)

LOGGED = {
    "summary_interval": 5,
    "distribution_interval": 4,  # first after a checkpoint: that of 43 batches
    "batch_size_interval": 3,
    "should_log_parameter_statistics": True,
    "should_log_learning_rate": True,
}
TENSORBOARD = {"trainer.callbacks": ["write_losses", {"type": "tensorboard", **LOGGED}]}
SPEED = ("train/words_per_second", "train/minutes_left")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, of a model with sparse gradients."""
    folder = tmp_path_factory.mktemp("whole")
    printed = train(write_config(folder, data, TENSORBOARD), folder / "run")
    assert "WARNING - allennlp.training.callbacks" not in printed and "tensorboardX" not in printed
    return folder / "run"


def curves(folder: Path) -> Dict[str, List[Tuple[int, Any]]]:
    """What TensorBoard shows, by the name of a curve."""
    found = {}
    for part in ("train", "validation"):
        events = EventAccumulator(
            str(folder / "log" / part), size_guidance={"scalars": 0, "histograms": 0}
        ).Reload()
        for name in events.Tags()["scalars"]:
            found[name] = [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["histograms"]:
            assert name not in found
            found[name] = [(e.step, e.histogram_value) for e in events.Histograms(name)]
    return found


def test_curves(whole: Path) -> None:
    found = curves(whole)
    n_batches = len(losses(whole))
    n_epochs = 3
    for batch, (_, n_total, _, batch_metrics, _) in losses(whole).items():
        if n_total % 5:
            continue
        for name in ("batch_loss", "perplexity", "forward_perplexity", "backward_perplexity"):
            curve = found["train/batch_" + name.replace("batch_", "")]
            assert dict(curve)[n_total + 1] == pytest.approx(batch_metrics[name]), batch
    by_interval = {5: ["gradient_norm", "train/batch_loss_mov_avg", *SPEED]}
    by_interval[5] += ["learning_rate/softmax.weight", "gradient_std/softmax.weight"]
    by_interval[4] = ["parameter_histogram/softmax.weight", "gradient_update/softmax.weight"]
    for interval, names in by_interval.items():
        for name in names:
            steps = [step for step, _ in found[name]]
            assert steps == [n + 1 for n in range(interval, n_batches + 1, interval)], name
    assert all(value > 0 for _, value in found["gradient_norm"])
    assert all(value > 0 for name in SPEED for _, value in found[name][:-1])
    assert found["train/minutes_left"][-1][1] < found["train/minutes_left"][0][1]
    for epoch in range(n_epochs):
        expected = metrics(whole, f"metrics_epoch_{epoch}")
        for part in ("train", "validation"):
            long_name = part.replace("train", "training")
            for name in ("perplexity", "forward_perplexity", "backward_perplexity", "loss"):
                step, value = found[f"{part}/{name}"][epoch]
                assert (step, value) == (
                    epoch + 1,
                    pytest.approx(expected[f"{long_name}_{name}"], rel=1e-6),
                )
    assert len(found["validation/perplexity"]) == n_epochs


def assert_equal_curves(folder: Path, whole: Path) -> None:
    found, expected = curves(folder), curves(whole)
    assert found.keys() == expected.keys()
    for name, curve in expected.items():
        if name in SPEED:
            assert [step for step, _ in found[name]] == [step for step, _ in curve], name
        else:
            assert found[name] == curve, name


def test_killed(whole: Path, tmp_path: Path) -> None:
    """Before the first checkpoint, after some batches, and after others are logged again."""
    config = whole.with_name("config.json")
    n_batches = len(losses(whole)) // 3
    for kill_at in (6, n_batches + 6, 6, 20):
        train(config, tmp_path / "run", kill_at=kill_at)
    # The last thing that was written may be cut off.
    newest = max((tmp_path / "run" / "log" / "train").iterdir())
    newest.write_bytes(newest.read_bytes()[:-3])
    train(config, tmp_path / "run")
    assert_equal_curves(tmp_path / "run", whole)


def test_two_processes(data: Path, tmp_path: Path) -> None:
    """Only the first process writes, and one file for each part."""
    changes = {**TENSORBOARD, "distributed": {"cuda_devices": [-1, -1]}, "trainer.num_epochs": 1}
    train(write_config(tmp_path, data, changes), tmp_path / "run")
    n_batches = len(losses(tmp_path / "run"))
    found = curves(tmp_path / "run")
    for name in ("train/batch_perplexity", "gradient_norm", *SPEED):
        assert [step for step, _ in found[name]] == list(range(6, n_batches + 2, 5)), name
    for part in ("train", "validation"):
        assert len(list((tmp_path / "run" / "log" / part).iterdir())) == 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the module wandb that collects what is logged, by run and step."""
    module: Any = types.ModuleType("wandb")
    module.runs = {}

    def init(id: str, resume: Any = None, **settings: Any) -> None:
        assert (id in module.runs) == (resume == "auto")
        module.run = module.runs.setdefault(id, {})

    def log(values: Dict[str, Any], step: int) -> None:
        if step >= max(module.run, default=0):  # wandb ignores earlier ones
            module.run.setdefault(step, {}).update(values)

    module.init, module.log = init, log
    module.Histogram = lambda values: values.tolist()
    module.save = module.watch = module.finish = lambda *args, **settings: None
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_API_KEY", "none")
    return module


@TrainerCallback.register("stop_after")
class StopAfter(TrainerCallback):
    """Raises an error after a checkpoint."""

    n_batches = 0

    def on_batch(self, *args: Any, is_training: bool, **kwargs: Any) -> None:
        StopAfter.n_batches -= is_training
        if StopAfter.n_batches == 0:
            raise RuntimeError("stopped")


def test_wandb(data: Path, tmp_path: Path, wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = [{"type": "wandb", **LOGGED}, "stop_after"]
    config = write_config(tmp_path, data, {"trainer.callbacks": callbacks, "trainer.num_epochs": 2})
    for name, stops in (("whole", [0]), ("run", [20, 0])):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(config, folder / "config.json")
        for n_batches in stops:
            monkeypatch.setattr(StopAfter, "n_batches", n_batches)
            with pytest.raises(RuntimeError, match="stopped") if n_batches else nullcontext():
                train_in_group(0, [config], [folder], 1)
    expected, found = wandb.runs.values()
    assert {"train/minutes_left", "gradient_norm", "validation/perplexity"} <= {
        name for values in expected.values() for name in values
    }
    for run in (expected, found):
        for values in run.values():
            for name in SPEED:
                values.pop(name, None)
    assert found == expected


def test_a_histogram_of_a_model_that_diverged(tmp_path: Path) -> None:
    events = _EventFile(str(tmp_path), None)
    for step, values in enumerate(([1.0, math.nan, 2.0], [math.inf, math.nan], [])):
        events.add_histogram("values", numpy.array(values), step)
    events.close()
    (found,) = EventAccumulator(str(tmp_path)).Reload().Histograms("values")
    assert found.step == 0 and found.histogram_value.num == 2 and found.histogram_value.sum == 3
