"""Runs that are killed and recovered, or of two processes, against one that was never stopped."""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.plugin.training import resumable_trainer
from allennlp_elmo_plugin.plugin.training.checkpointer import WholeCheckpointer
from tests.support.process_group import run_processes
from tests.support.testing import fork, read_files
from tests.support.training_runs import (
    assert_equal_runs,
    finish,
    losses,
    metrics,
    start,
    train_here,
    write_config,
)

LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
FALLING = {"type": "linear_with_warmup", "warmup_steps": 10}
VARIANTS: dict[str, dict[str, Any]] = {
    "characters": {},
    "epochs_of_batches": {
        "data_loader.num_workers": 1,
        "data_loader.batches_per_epoch": 8,
        "trainer.num_gradient_accumulation_steps": 2,
        "trainer.moving_average": {"type": "exponential", "decay": 0.9},
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
        "evaluate_on_test": True,
        "trainer.validation_metric": "+perplexity",  # The first epoch is the best.
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
        "trainer.learning_rate_scheduler": {**FALLING, "num_epochs": 3, "num_steps_per_epoch": 12},
    },
}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A folder with a configuration, `config.json`, and its run, `run`."""
    folder = tmp_path_factory.mktemp("whole")
    train_here(write_config(folder, data, {}), folder / "run")
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_every_batch(data, tmp_path, variant):
    changes = {"test_data_path": str(data / "heldout.txt"), **VARIANTS[variant]}
    config = write_config(tmp_path, data, changes)
    train_here(config, tmp_path / "whole")
    n_batches = len(losses(tmp_path / "whole"))
    assert n_batches > 10
    for batch in range(1, n_batches + 1):
        train_here(config, tmp_path / "run", kill_at=batch)
    for folder in ("run", "moved"):
        results = train_here(config, tmp_path / folder)
        assert_equal_runs(tmp_path / folder, tmp_path / "whole")
        # Then without the metrics, in a folder that was moved
        (tmp_path / folder).rename(tmp_path / "moved")
        (tmp_path / "moved" / "metrics.json").unlink()
    assert ("test_loss" in results) == (variant == "token_model")


def test_killed_at_any_write(whole, tmp_path):
    """By SIGKILL, each time a few files later, in a folder whose name is a glob."""
    folder = tmp_path / "run[1]*"
    n_files = 0
    while fork(lambda: train_here(whole / "config.json", folder), kill_at=n_files) != 0:
        n_files += 2
    assert n_files > 30
    assert_equal_runs(folder, whole / "run")


@pytest.mark.parametrize(
    "name, settings", [("adam", {}), ("sparse_adam", {}), ("sgd", {"weight_decay": 0.1})]
)
def test_an_optimizer_for_one_kind_of_gradients(name, settings, data, tmp_path):
    optimizer = {"type": name, "lr": 0.01, **settings}
    config = write_config(tmp_path, data, {"trainer.optimizer": optimizer})
    message = "can't train a sampled softmax or a token embedding.* use .dense_sparse_adam.* witho"
    with pytest.raises(ConfigurationError, match=message):
        train_here(config, tmp_path / "run")


def test_a_vocabulary_of_another_size(whole, tmp_path):
    shutil.copytree(whole / "run", tmp_path / "run")
    path = tmp_path / "run" / "vocabulary" / "lm_tokens.txt"
    path.write_text(path.read_text(encoding="utf-8") + "new\n", encoding="utf-8")
    message = "run: the vocabulary has 64 words, but the checkpoint is of one with 63; put the voc"
    with pytest.raises(ConfigurationError, match=message):
        train_here(whole / "config.json", tmp_path / "run")


def test_another_text_is_refused(data, whole, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    config = write_config(tmp_path, tmp_path / "data", {})
    train_here(config, tmp_path / "run", kill_at=8)
    before = read_files(tmp_path / "run")
    text = tmp_path / "data" / "heldout.txt"
    content = text.read_bytes()
    text.write_bytes(content[::-1])
    with pytest.raises(ConfigurationError, match="heldout.txt .*put the files back"):
        train_here(config, tmp_path / "run")
    name = "vocabulary/non_padded_namespaces.txt"  # AllenNLP writes a set, in any order.
    assert {**read_files(tmp_path / "run"), name: before[name]} == before
    text.write_bytes(content)
    train_here(config, tmp_path / "run")
    assert_equal_runs(tmp_path / "run", whole / "run")


def test_more_epochs(data, whole, tmp_path):
    config = write_config(tmp_path, data, {"trainer.num_epochs": 1})
    train_here(config, tmp_path / "run")
    train_here(whole / "config.json", tmp_path / "run")
    assert_equal_runs(tmp_path / "run", whole / "run")


def test_more_epochs_of_a_schedule(data, tmp_path):
    """The recovered run has the rates of the longer schedule, not zeros after the shorter one."""
    schedule = {"trainer.learning_rate_scheduler": FALLING}
    short = write_config(tmp_path, data, {**schedule, "trainer.num_epochs": 1})
    train_here(short, tmp_path / "run")
    long = write_config(tmp_path, data, schedule)
    rates = []
    for folder in ("run", "whole"):
        train_here(long, tmp_path / folder, kill_at=20)
        state = torch.load(tmp_path / folder / "training_state_e1_b5.th")
        rates.append(state["optimizer"]["param_groups"][0]["lr"])
    assert rates[0] == rates[1] > 0


SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {},
    "constant_with_warmup": {"num_warmup_steps": 2},
    "cosine": {"t_initial": 2},
    "cosine_hard_restarts_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 3},
    "cosine_with_warmup": {"num_warmup_steps": 1, "num_training_steps": 3},
    "exponential": {"gamma": 0.5},
    "linear_with_warmup": {"warmup_steps": 10},
    "multi_step": {"milestones": [1, 2]},
    "noam": {"model_size": 8, "warmup_steps": 10},
    "polynomial_decay": {"warmup_steps": 10, "end_learning_rate": 0.001},
    "reduce_on_plateau": {"patience": 0, "factor": 0.5},
    "slanted_triangular": {},
    "step": {"step_size": 1, "gamma": 0.5},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name, data, tmp_path, repository_root):
    """Those in the documentation, which are all but one."""
    assert {*SCHEDULES, "combined"} == {*LearningRateScheduler.list_available()}
    assert f"`{name}`" in (repository_root / "docs" / "pretraining.md").read_text(encoding="utf-8")
    schedule = {"type": name, **SCHEDULES[name]}
    changes = {"trainer.num_epochs": 3, "trainer.learning_rate_scheduler": schedule}
    config = write_config(tmp_path, data, changes)
    train_here(config, tmp_path / "whole")
    for batch in (5, 17, 30):
        train_here(config, tmp_path / "run", kill_at=batch)
    train_here(config, tmp_path / "run")
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("settings, seconds", [({}, 600), ({"save_every_num_seconds": 5}, 5)])
def test_checkpoints_by_time(settings, seconds, data, tmp_path):
    extra = {"trainer.checkpointer": settings, "trainer.validation_metric": ["-loss", "-reg_loss"]}
    params = Params.from_file(write_config(tmp_path, data, extra))
    if not settings:
        del params["trainer"].params["checkpointer"]
    loop: Any = TrainModel.from_params(params=params, serialization_dir=str(tmp_path), local_rank=0)
    assert type(loop.trainer._checkpointer) is WholeCheckpointer
    assert loop.trainer._checkpointer.seconds == seconds


def test_other_number_of_processes(whole, tmp_path):
    shutil.copytree(whole / "run", tmp_path / "run")
    path = tmp_path / "run" / "training_state_e2_b0.th"
    state = torch.load(path)
    state["callbacks"][0]["processes"] *= 2
    torch.save(state, path)
    with pytest.raises(ConfigurationError, match="is of 2 processes, but this run has 1"):
        train_here(whole / "config.json", tmp_path / "run")


CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def draw():
    # NumPy draws normal numbers in pairs, and keeps one of an odd number.
    return random.gauss(0, 1), np.random.normal(size=3).tolist(), torch.randn(3).tolist()


def test_numbers_are_drawn_again(tmp_path, monkeypatch):
    """From a file that `torch.load` reads with `weights_only`, also on another device."""
    calls = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: f"of {device}")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *args: calls.append(args))
    for before, now in ((CPU, CPU), (CPU, GPU), (GPU, CPU), (GPU, GPU)):
        assert calls == []
        torch.save(resumable_trainer.get_random_state(before), tmp_path / "state")
        first = draw()
        resumable_trainer.set_random_state(torch.load(tmp_path / "state", weights_only=True), now)
        assert draw() == first
    assert calls == [("of cuda:0", GPU)]


TWO = {
    "dataset_reader.batch_size": 2,
    "validation_dataset_reader.batch_size": 2,
    "distributed": {"cuda_devices": [-1, -1]},
}
# Some rows end early in training, too, and in the last window one process has no words.
EVEN: dict[str, Any] = {"model.num_samples": 0, "dataset_reader.drop_last": False}
TOKENS = {
    **EVEN,
    "model.options": {"dropout": 0.0, "lstm": LSTM},
    "dataset_reader.max_characters_per_token": None,
    "validation_dataset_reader.max_characters_per_token": None,
    "trainer.num_gradient_accumulation_steps": 2,
    "trainer.num_epochs": 1,
}
GROUPS = [[["^softmax"], {"lr": 0.1}], [["lstm"], {"lr": 0.05}]]
OF_TWO: dict[str, dict[str, Any]] = {
    "characters": {
        **EVEN,
        "model.options.dropout": 0.0,
        "trainer.callbacks": ["write_losses", "initial_validation"],
        "evaluate_on_test": True,
    },
    "tied": {
        **TOKENS,
        "model.share_embedding_softmax": True,
        "model.regularizer": {"regexes": [["^bilm", {"type": "l2", "alpha": 0.01}]]},
        "trainer.optimizer.parameter_groups": GROUPS,
        "trainer.grad_norm": True,
        "data_loader.num_workers": 1,
    },
    "frozen": {
        **TOKENS,
        "trainer.no_grad": ["^softmax", "forward_layer_0"],
        "trainer.num_gradient_accumulation_steps": 3,  # the last group is not full
        "dataset_reader.bidirectional": False,
        "validation_dataset_reader.bidirectional": False,
        "model.bidirectional": False,
    },
}


@pytest.mark.parametrize("variant", OF_TWO)
def test_two_processes_are_as_one(data, tmp_path, variant):
    """Two processes of two rows train and evaluate as one of four rows."""
    test = tmp_path / "test.txt"
    test.write_bytes(b"".join((data / "heldout.txt").read_bytes().splitlines(True)[:12]))
    changes = {**OF_TWO[variant], "test_data_path": str(test)}
    train_here(write_config(tmp_path, data, changes), tmp_path / "one")
    config = write_config(tmp_path, data, {**changes, **TWO})
    finish(start(config, tmp_path / "two"), tmp_path / "two")
    one, two = (metrics(tmp_path / name) for name in ("one", "two"))
    assert ("test_loss" in one) == ("evaluate_on_test" in changes)
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert two[key] == pytest.approx(value, rel=1e-4), key
    expected = losses(tmp_path / "one")
    first, second = (losses(tmp_path / "two", rank) for rank in (0, 1))
    assert expected.keys() == first.keys() == second.keys()
    for batch, (_, _, values, *_) in expected.items():
        pairs = zip(first[batch][2], second[batch][2])
        means = [sum(map(float.fromhex, pair)) / 2 for pair in pairs]
        assert means == pytest.approx(list(map(float.fromhex, values)), abs=1e-5), batch
    # Each process has its own seed, so that their dropout differs.
    seeds = [{entry[-1] for entry in entries.values()} for entries in (first, second)]
    assert len(seeds[0]) == len(seeds[1]) == 1 and seeds[0] != seeds[1]


@pytest.fixture(scope="module")
def sampled(data, tmp_path_factory):
    """A run of two processes with a sampled softmax and dropout."""
    folder = tmp_path_factory.mktemp("sampled")
    changes = {**TWO, "train_data_path": str(data / "shards"), "dataset_reader.drop_last": False}
    finish(start(write_config(folder, data, changes), folder / "whole"), folder / "whole")
    return folder / "whole"


@pytest.mark.parametrize(
    "number, word",
    [(signal.SIGKILL, ""), (signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")],
)
def test_two_processes_stopped(sampled, tmp_path, number, word):
    """`kill` signals the first process, Ctrl-C in a terminal all of them."""
    config, run = sampled.with_name("config.json"), tmp_path / "run"
    process = start(config, run)
    while not list(run.glob("model_state_e1_b*.th")):
        assert os.waitpid(process, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
    ranks = list(map(int, listed.split()))
    for pid in [process, *(ranks if number != signal.SIGTERM else [])]:
        os.kill(pid, number)
    printed = finish(process, run, -number)
    if word:
        assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
        command = f"allennlp train {config} -s {run} --recover"
        assert printed.splitlines()[-1] == f"{word}; continue with: {command}"
        assert "Traceback" not in printed
        assert (run / "model.tar.gz").exists()
        # The last batch was saved.
        epoch, batch = max(losses(run))
        assert (run / f"model_state_e{epoch}_b{batch}.th").exists()
    finish(start(config, run), run)
    assert_equal_runs(run, sampled)
    assert losses(run, 1) == losses(sampled, 1)


def _start(rank, configs):
    """Return the error of a process."""
    with pytest.raises(ConfigurationError) as raised:
        train_here(configs[rank], configs[rank].parent)
    return str(raised.value)


@pytest.mark.parametrize("key", ["vocabulary.directory", "validation_data_path"])
def test_other_data(key, data, tmp_path):
    """The copies of two machines differ."""
    make_vocabulary(data / "heldout.txt", tmp_path / "other")
    path = tmp_path / "other" if key == "vocabulary.directory" else data / "shards" / "0.txt"
    two = {"trainer.distributed": True, "trainer.world_size": 2}
    configs = []
    for name, changes in ("first", {}), ("second", {key: str(path)}):
        (tmp_path / name).mkdir()
        configs.append(write_config(tmp_path / name, data, {**two, **changes}))
    for message in run_processes(2, tmp_path, _start, configs):
        assert "The vocabulary or the text of rank 1 differs" in message
