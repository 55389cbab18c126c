"""`allennlp train` in several processes against runs in one process."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from tests.support.process_group import run_processes
from tests.support.training_runs import (
    assert_equal_runs,
    finish,
    losses,
    metrics,
    start,
    train_here,
    write_config,
)

TWO = {
    "dataset_reader.batch_size": 2,
    "validation_dataset_reader.batch_size": 2,
    "distributed": {"cuda_devices": [-1, -1]},
}
# Some rows end early in training, too, and in the last window one process has no words.
EVEN: dict[str, Any] = {"model.num_samples": 0, "dataset_reader.drop_last": False}
TOKENS = {
    **EVEN,
    "model.options": {"dropout": 0.0, "lstm": {"dim": 12, "projection_dim": 8, "n_layers": 2}},
    "dataset_reader.max_characters_per_token": None,
    "validation_dataset_reader.max_characters_per_token": None,
    "trainer.num_gradient_accumulation_steps": 2,
    "trainer.num_epochs": 1,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "characters": {
        **EVEN,
        "model.options.dropout": 0.0,
        "trainer.callbacks": ["write_losses", "initial_validation"],
        "evaluate_on_test": True,
    },
    "tokens": TOKENS,
    "tied": {
        **TOKENS,
        "model.share_embedding_softmax": True,
        "model.regularizer": {"regexes": [["^bilm", {"type": "l2", "alpha": 0.01}]]},
        "trainer.optimizer.parameter_groups": [
            [["^softmax"], {"lr": 0.1}],
            [["lstm"], {"lr": 0.05}],
        ],
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_are_as_one(data, tmp_path, variant):
    """Two processes of two rows train and evaluate as one of four rows."""
    test = tmp_path / "test.txt"
    test.write_bytes(b"".join((data / "heldout.txt").read_bytes().splitlines(True)[:12]))
    changes = {**VARIANTS[variant], "test_data_path": str(test)}
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
    seeds = [{entry[-1] for entry in each.values()} for each in (first, second)]
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
    for each in [process, *(ranks if number != signal.SIGTERM else [])]:
        os.kill(each, number)
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
    params = Params.from_file(configs[rank])
    params.params.pop("distributed")
    params["trainer"].params.update(world_size=2, distributed=True)
    with pytest.raises(ConfigurationError) as raised:
        TrainModel.from_params(
            params=params, serialization_dir=str(configs[rank].parent), local_rank=0
        )
    return str(raised.value)


@pytest.mark.parametrize("key", ["vocabulary.directory", "validation_data_path"])
def test_other_data(key, data, tmp_path):
    """The copies of two machines differ."""
    make_vocabulary(data / "heldout.txt", tmp_path / "other")
    path = tmp_path / "other" if key == "vocabulary.directory" else data / "shards" / "0.txt"
    configs = []
    for name, changes in ("first", {}), ("second", {key: str(path)}):
        (tmp_path / name).mkdir()
        configs.append(write_config(tmp_path / name, data, {**TWO, **changes}))
    for message in run_processes(2, tmp_path, _start, configs):
        assert "The vocabulary or the text of rank 1 differs" in message
