"""Runs that are killed and recovered against runs that were never stopped."""

import os
import random
import shutil
import sys
import time
from typing import Any, Dict
from unittest.mock import MagicMock

import pytest
import torch
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from allennlp.training import GradientDescentTrainer

from allennlp_elmo_plugin.training import ResumableTrainer, resumable_trainer
from allennlp_elmo_plugin.training.checkpointer import WholeCheckpointer
from tests.support.testing import read_files
from tests.support.training_runs import (
    Killed,
    assert_equal_runs,
    losses,
    metrics,
    start,
    train,
    train_here,
    write_config,
)

LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
VARIANTS: Dict[str, Dict[str, Any]] = {
    "characters": {},
    "epochs_of_batches": {
        "data_loader.num_workers": 1,
        "data_loader.batches_per_epoch": 8,
        "trainer.num_gradient_accumulation_steps": 2,
        "trainer.num_epochs": 4,
    },
    "token_model": {
        "model.options": {"dropout": 0.3, "lstm": LSTM},
        "dataset_reader.max_characters_per_token": None,
        "validation_dataset_reader.max_characters_per_token": None,
        "dataset_reader.shuffle_sentences": False,
        "model.regularizer": {"regexes": [["softmax.*", {"type": "l2", "alpha": 0.01}]]},
        "trainer.learning_rate_scheduler": {"type": "noam", "model_size": 8, "warmup_steps": 20},
        "trainer.num_epochs": 3,
        "trainer.patience": 1,
        "trainer.validation_metric": "+perplexity",  # The second epoch is the last.
    },
    "small_corpus": {
        "model.dropout": 0.3,
        "model.variational_dropout": True,
        "model.recurrent_dropout": 0.3,
        "model.state_reset": 0.2,
        "model.precision": "bfloat16",
        "dataset_reader.shuffle_sentences": False,
        "dataset_reader.contiguous": True,
        "validation_dataset_reader.contiguous": True,
        "trainer.optimizer": {"type": "dense_sparse_adam", "lr": 0.01},
        "trainer.learning_rate_scheduler": {
            "type": "linear_with_warmup",
            "warmup_steps": 10,
            "num_epochs": 3,
            "num_steps_per_epoch": 12,
        },
    },
}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A folder with a configuration, `config.json`, and its run, `run`."""
    folder = tmp_path_factory.mktemp("whole")
    train_here(write_short_config(folder, data, {}), folder / "run")
    return folder


def write_short_config(folder, data, changes):
    """Of a run of two epochs of a dozen batches."""
    short = {
        "trainer.num_epochs": 2,
        "train_data_path": str(data / "heldout.txt"),
        "validation_data_path": str(data / "heldout.txt"),
        "trainer.checkpointer.save_every_num_batches": 5,
    }
    return write_config(folder, data, {**short, **changes})


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_every_batch(data, tmp_path, variant):
    config = write_short_config(tmp_path, data, VARIANTS[variant])
    train_here(config, tmp_path / "whole")
    n_batches = len(losses(tmp_path / "whole"))
    assert n_batches > 10
    for batch in range(1, n_batches + 1):
        with pytest.raises(Killed):
            train_here(config, tmp_path / "run", kill_at=batch)
    train_here(config, tmp_path / "run")
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")


class _Changes:
    """Raises `Killed` before a change to a file in the folder of a run, the n-th from now on."""

    n_left = sys.maxsize

    @classmethod
    def count(cls, event, arguments):
        if cls.n_left == sys.maxsize or event not in ("open", "os.link", "os.remove", "os.rename"):
            return
        name = os.path.basename(str(arguments[0]))
        if name.endswith((".th", ".partial", ".json", "lm_tokens.txt")):
            cls.n_left -= 1
            if cls.n_left < 0:
                cls.n_left = sys.maxsize
                raise Killed


sys.addaudithook(_Changes.count)


def train_until_change(config, folder, n_changes):
    """Return whether the training has ended before it changed so many files."""
    _Changes.n_left = n_changes
    try:
        train_here(config, folder)
        return True
    except Killed:
        return False
    finally:
        _Changes.n_left = sys.maxsize


def test_killed_at_every_write(whole, tmp_path):
    n_kills = 0
    while not train_until_change(whole / "config.json", tmp_path / "run", n_kills):
        n_kills += 1
    assert n_kills >= 15
    assert_equal_runs(tmp_path / "run", whole / "run")


@pytest.mark.parametrize("seed", range(3))
def test_killed_several_times(whole, tmp_path, seed):
    numbers = random.Random(seed)
    for _ in range(numbers.randint(2, 4)):
        train_until_change(whole / "config.json", tmp_path / "run", numbers.randint(0, 50))
    train_here(whole / "config.json", tmp_path / "run")
    assert_equal_runs(tmp_path / "run", whole / "run")


def test_killed_from_outside(data, tmp_path):
    """SIGKILL, at no point in particular. The name has what a glob reads."""
    config = write_config(tmp_path, data, {})
    folder = tmp_path / "run[1]*"
    log = folder / "losses.jsonl"
    for n_lines in (10, 40, 90):
        process = start(config, folder)
        while not log.exists() or log.read_bytes().count(b"\n") < n_lines:
            assert process.is_alive()
            time.sleep(0.01)
        process.kill()
        process.join()
    train(config, folder)
    train_here(config, tmp_path / "whole")
    assert_equal_runs(folder, tmp_path / "whole")


def test_other_text(data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    config = write_short_config(tmp_path, tmp_path / "data", {})
    with pytest.raises(Killed):
        train_here(config, tmp_path / "run", kill_at=8)
    before = read_files(tmp_path / "run")
    path = tmp_path / "data" / "heldout.txt"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(ConfigurationError, match="heldout.txt .*put the files back"):
        train_here(config, tmp_path / "run")
    assert read_files(tmp_path / "run") == before


def test_other_vocabulary(data, whole, tmp_path):
    """The rows of the weights belong to the words of the run's own vocabulary."""
    shutil.copytree(data, tmp_path / "data")
    config = write_short_config(tmp_path, tmp_path / "data", {})
    with pytest.raises(Killed):
        train_here(config, tmp_path / "run", kill_at=8)
    path = tmp_path / "data" / "vocabulary" / "vocabulary" / "lm_tokens.txt"
    words = path.read_text(encoding="utf-8").split()
    path.write_text("\n".join([*words[:3], "new", *words[:2:-1]]), encoding="utf-8")
    train_here(config, tmp_path / "run")
    assert_equal_runs(tmp_path / "run", whole / "run")


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory):
    """As `whole`, of a run that stops early, whose best epoch is the first, and evaluates."""
    folder = tmp_path_factory.mktemp("stopped")
    changes = {
        "trainer.validation_metric": "+perplexity",
        "trainer.num_epochs": 3,
        "trainer.patience": 1,
        "test_data_path": str(data / "heldout.txt"),
        "evaluate_on_test": True,
    }
    train_here(write_short_config(folder, data, changes), folder / "run")
    assert metrics(folder / "run")["epoch"] == 1 and metrics(folder / "run")["best_epoch"] == 0
    return folder


@pytest.mark.parametrize("run", ["whole", "stopped"])
def test_a_run_that_has_ended(run, tmp_path, request):
    """It ends again as it did, in a folder that was moved and has lost its metrics."""
    ended = request.getfixturevalue(run)
    shutil.copytree(ended / "run", tmp_path / "moved")
    (tmp_path / "moved" / "metrics.json").unlink()
    # The last weights are written to best.th again if they are the best.
    written = ("metrics.json", "best.th")
    before = read_files(tmp_path / "moved", *written)
    (ended / "run").rename(ended / "away")
    try:
        train_here(ended / "config.json", tmp_path / "moved")
    finally:
        (ended / "away").rename(ended / "run")
    assert_equal_runs(tmp_path / "moved", ended / "run")
    assert read_files(tmp_path / "moved", *written) == before


def test_more_epochs(data, whole, tmp_path):
    config = write_short_config(tmp_path, data, {"trainer.num_epochs": 1})
    train_here(config, tmp_path / "run")
    train_here(whole / "config.json", tmp_path / "run")
    assert_equal_runs(tmp_path / "run", whole / "run")


class TestTrainer:
    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"trainer.use_amp": True}, '"precision": "bfloat16" in the model'),
            ({"trainer.num_epoch": 3}, "there is no setting num_epoch"),
            ({"trainer.validation_metric": "-none"}, "'none', but the model's metrics are perpl"),
            ({"trainer.validation_metric": ["-loss", "+los"]}, "validation_metric has 'los'"),
        ],
    )
    def test_refused(self, changes, message, data, tmp_path):
        params = Params.from_file(write_short_config(tmp_path, data, changes))
        with pytest.raises(ConfigurationError, match=message):
            TrainModel.from_params(params=params, serialization_dir=str(tmp_path), local_rank=0)

    @pytest.mark.parametrize(
        "changes",
        [
            {"validation_data_path": None, "trainer.validation_metric": "+none"},
            {"trainer.validation_metric": ["-loss", "-reg_loss"]},
        ],
        ids=str,
    )
    def test_accepted(self, changes, data, tmp_path):
        params = Params.from_file(write_short_config(tmp_path, data, changes))
        TrainModel.from_params(params=params, serialization_dir=str(tmp_path), local_rank=0)

    @pytest.mark.parametrize("given", [{}, {"checkpointer": {"save_every_num_seconds": 5}}])
    def test_checkpoints_by_time(self, given, data, tmp_path):
        params = Params.from_file(write_short_config(tmp_path, data, {}))
        params["trainer"].pop("checkpointer")
        params["trainer"].params.update(given)
        loop: Any = TrainModel.from_params(
            params=params, serialization_dir=str(tmp_path), local_rank=0
        )
        assert type(loop.trainer._checkpointer) is WholeCheckpointer
        assert loop.trainer._checkpointer.seconds == (5 if given else 600)

    def test_other_number_of_processes(self, data, tmp_path):
        config = write_short_config(tmp_path, data, {"trainer.num_epochs": 1})
        train_here(config, tmp_path / "run")
        path = tmp_path / "run" / "training_state_e1_b0.th"
        state = torch.load(path)
        state["callbacks"][0]["processes"] *= 2
        torch.save(state, path)
        with pytest.raises(ConfigurationError, match="is of 2 processes, but this run has 1"):
            train_here(config, tmp_path / "run")

    def test_archive(self, data, tmp_path):
        """It has the best weights; the penalty is that of the weights after the epoch."""
        changes = {
            "model.regularizer": {"regexes": [["lstm", {"type": "l2", "alpha": 0.01}]]},
            "trainer.num_epochs": 1,
        }
        config = write_short_config(tmp_path, data, changes)
        model: Any = train_model(Params.from_file(config), str(tmp_path / "run"))
        penalty = model.get_regularization_penalty().item()
        assert metrics(tmp_path / "run")["training_reg_loss"] == pytest.approx(penalty, rel=1e-6)
        archived = load_archive(tmp_path / "run" / "model.tar.gz").model.state_dict()
        best = torch.load(tmp_path / "run" / "best.th")
        assert archived.keys() == best.keys()
        assert all(torch.equal(archived[name], best[name]) for name in best)

    def test_leaves_others_alone(self, tmp_path):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stock, ours = (
            trainer_class(
                model, optimizer, MagicMock(), serialization_dir=str(tmp_path), cuda_device=-1
            )
            for trainer_class in (GradientDescentTrainer, ResumableTrainer)
        )
        states = [trainer.get_checkpoint_state().trainer_state for trainer in (stock, ours)]
        assert states[0] == states[1]

    def test_freezes_before_processes_are_joined(self, data, tmp_path, monkeypatch):
        keep = MagicMock()
        monkeypatch.setattr(resumable_trainer, "keep_memory_of_training", keep)
        model: Any = torch.nn.Linear(1, 1)
        model.training_state = model.get_metrics = dict
        ResumableTrainer.from_partial_objects(model, str(tmp_path), MagicMock(), no_grad=["bias"])
        assert [each.requires_grad for each in model.parameters()] == [True, False]
        keep.assert_called_once_with()
