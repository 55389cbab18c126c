"""
The trainer "language_model" is the loop of `elmo-train`, to the bit; and AllenNLP's own trainer,
which nothing replaces, has the same losses.
"""

import inspect
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import TrainModel
from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer, Trainer

from allennlp_elmo_plugin import training
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.plugin.registration import REPLACED
from allennlp_elmo_plugin.plugin.training import LanguageModelTrainer
from tests.commands.elmo_train_test import free_port, wait
from tests.support import elmo_train_runs
from tests.support.bilm_tf import REFERENCE
from tests.support.elmo_train_runs import elmo_train, losses, noted_losses, write_size
from tests.support.process_group import run_processes
from tests.support.testing import fork, read_files
from tests.support.training_runs import (
    GRADIENT_DESCENT,
    finish,
    metrics,
    start,
    train_here,
    write_config,
)

LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
WORDS: dict[str, Any] = {"model.options": {"dropout": 0.3, "lstm": LSTM}}
for which in ("", "validation_"):
    WORDS[f"{which}dataset_reader.max_characters_per_token"] = None
FORWARD = {f"{which}dataset_reader.bidirectional": False for which in ("", "validation_")}
CASES: dict[str, dict[str, Any]] = {
    "sampled softmax": {},
    "full softmax": {"model.num_samples": 0, "data_loader.batches_per_epoch": 5},
    "words": WORDS,
    "tied words": {**WORDS, "model.num_samples": 0, "model.share_embedding_softmax": True},
    "forward": {**FORWARD, "model.bidirectional": False},
}
# The files of both commands
OF_LOOP = ("weights.hdf5", "softmax.hdf5", "options.json", "vocab.txt", "adagrad.hdf5")
TWO = {"distributed": {"cuda_devices": [-1, -1]}}


def train_both(folder, data, changes):
    """Train by both commands; return their folders, each with its losses in `FOLDER.losses`."""
    config = write_config(folder, data, changes)
    theirs, ours = folder / "theirs", folder / "ours"
    with noted_losses(f"{theirs}.losses"):
        train_here(config, theirs)
    text, size = data / "heldout.txt", write_size(config, folder / "size.json")
    vocabulary = ["--vocab", data / "vocabulary"]
    arguments = [text, "--validation", text, "--size", size, *vocabulary, "-o", ours]
    elmo_train(arguments, f"{ours}.losses")
    return theirs, ours


def assert_equal_runs(one, other, suffix=""):
    """Compare losses, metrics and the bytes of the model."""
    assert losses(Path(f"{one}.losses{suffix}")) == losses(Path(f"{other}.losses{suffix}")) != []
    for epoch, values in enumerate(elmo_train_runs.metrics(one)):
        others = metrics(other, f"metrics_epoch_{epoch}")
        assert {key: others[key] for key in others if not key.endswith("_loss")} == {
            key: values[key] for key in values if not key.endswith("_loss")
        }
    for name in OF_LOOP:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_that_of_elmo_train(case, data, tmp_path):
    theirs, ours = train_both(tmp_path, data, CASES[case])
    assert_equal_runs(theirs, ours)
    results = metrics(theirs)
    best = results["best_epoch"]
    last, of_best = (metrics(theirs, f"metrics_epoch_{n}") for n in (1, best))
    of_best = {f"best_{k}": v for k, v in of_best.items() if k.startswith("validation_")}
    assert results == {"best_epoch": best, "epoch": 1, **last, **of_best}


@pytest.mark.parametrize("case", [*CASES, "two batches an update"])
def test_allennlps_own_trainer_has_the_same_losses(case, data, tmp_path):
    """For two epochs: the second oracle of the loop. It has no part of ours."""
    n_batches = {"num_gradient_accumulation_steps": 2} if case not in CASES else {}
    changes = CASES.get(case, {})
    own = {**changes, **{f"trainer.{key}": value for key, value in n_batches.items()}}
    ours = tmp_path / "ours"
    with noted_losses(f"{ours}.losses"):
        train_here(write_config(tmp_path, data, own), ours)
    theirs = tmp_path / "theirs"
    config = write_config(tmp_path, data, {**changes, "trainer": {**GRADIENT_DESCENT, **n_batches}})
    train_here(config, theirs)
    of_ours = [[entry[-1] for entry in group] for group in losses(Path(f"{ours}.losses"))]
    assert of_ours == losses(Path(f"{theirs}.losses"))
    for epoch in range(2):
        expected, actual = (metrics(run, f"metrics_epoch_{epoch}") for run in (theirs, ours))
        for name in filter(lambda name: "loss" not in name, actual):
            assert actual[name] == expected[name], name
    best, of_theirs = (torch.load(run / "best.th") for run in (ours, theirs))
    assert all(torch.equal(best[name], of_theirs[name]) for name in of_theirs)
    assert Trainer.resolve_class_name("gradient_descent")[0] is GradientDescentTrainer
    assert TrainModel.resolve_class_name("default")[0] is TrainModel
    assert not any(name.endswith(("Trainer", "TrainModel")) for name in REPLACED)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adagrad", "two processes"])
def test_what_allennlps_trainer_cannot_train_names_the_one_that_can(optimizer, data, tmp_path):
    settings: dict[str, Any] = {"type": optimizer, "lr": 0.01, "weight_decay": 0.1}
    changes: dict[str, Any] = {"trainer": {**GRADIENT_DESCENT, "optimizer": settings}}
    if optimizer == "two processes":
        changes = {"trainer": {**GRADIENT_DESCENT, "callbacks": []}, **TWO}
    run = tmp_path / "run"
    printed = finish(start(write_config(tmp_path, data, changes), run), run, 1)
    [line] = [line for line in printed.splitlines() if line.startswith("error: ")]
    assert line.startswith('error: trainer: "gradient_descent" can\'t train a sampled softmax or')
    assert 'use the trainer "language_model"' in line and not run.exists()


def test_the_settings_are_those_of_the_loop():
    """With their defaults; so none falls between them."""
    ours, loops = (
        inspect.signature(function).parameters
        for function in (LanguageModelTrainer.__init__, training.Trainer.__init__)
    )
    names = loops.keys() - {"self", "text", "validation", "folder", "device", "settings"}
    for name in names - {"model"}:
        assert ours[name].default == loops[name].default, name
    of_allennlp = {*inspect.signature(Trainer.__init__).parameters, "adagrad_state"}
    of_allennlp |= {"data_loader", "validation_data_loader", "ddp_accelerator"}
    assert ours.keys() - of_allennlp == names


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A folder with a configuration, `config.json`, and its run, `run`."""
    folder = tmp_path_factory.mktemp("whole")
    config = write_config(folder, data, {"trainer.validate_first": True})
    finish(start(config, folder / "run"), folder / "run")
    return folder


def test_killed_at_any_write(whole, tmp_path):
    """By SIGKILL, each time a few files later, in a folder whose name is a glob."""
    folder, config = tmp_path / "run[1]*", whole / "config.json"
    n_files = 0

    def train():
        with noted_losses(f"{folder}.losses", seconds=0.0):
            train_here(config, folder)

    while fork(train, kill_at=n_files) != 0:
        n_files += 11
    assert n_files > 50
    assert "## Training\n\n```json" in (whole / "run" / "README.md").read_text(encoding="utf-8")
    assert_equal_runs(folder, whole / "run")
    assert metrics(folder) == metrics(whole / "run")
    assert (folder / "best.th").read_bytes() == (whole / "run" / "best.th").read_bytes()
    # A run that had ended, in a folder that was moved, gets its metrics again.
    folder.rename(tmp_path / "moved")
    (tmp_path / "moved" / "metrics.json").unlink()
    n_losses = len(Path(f"{folder}.losses").read_text(encoding="utf-8"))
    train_here(config, tmp_path / "moved")
    assert metrics(tmp_path / "moved") == metrics(whole / "run")
    assert len(Path(f"{folder}.losses").read_text(encoding="utf-8")) == n_losses


def test_a_changed_vocabulary_or_text_is_named(whole, data, tmp_path):
    for name in ("run", "run.losses"):
        (shutil.copytree if name == "run" else shutil.copy)(whole / name, tmp_path / name)
    make_vocabulary(whole / "config.json", tmp_path / "other")
    config = json.loads((whole / "config.json").read_text(encoding="utf-8"))
    before = read_files(tmp_path / "run")
    for section, changes in (
        ("the vocabulary", {"vocabulary.directory": str(tmp_path / "other")}),
        ("0.txt", {"train_data_path": str(data / "shards" / "0.txt")}),
    ):
        changed = write_config(tmp_path, data, {"trainer": config["trainer"], **changes})
        with pytest.raises(ConfigurationError, match=f"checkpoint: .*{section}.* changed"):
            train_here(changed, tmp_path / "run")
    assert read_files(tmp_path / "run") == before


def test_validation_and_sums_before_training(data, whole, tmp_path, capsys):
    """Fine-tuning from a run, with its vocabulary and its sums, as by `elmo-train --from`."""
    source, text = whole / "run", data / "heldout.txt"
    steps = {f"{which}dataset_reader.num_steps": 20 for which in ("", "validation_")}
    model = {"type": "bidirectional_lm", "pretrained_file": str(source)}
    adagrad = {"trainer.adagrad_state": str(source / "adagrad.hdf5")}
    changes = {**steps, "model": model, "trainer.validate_first": True, "trainer.patience": 2}
    config = write_config(tmp_path, data, {**changes, **adagrad})
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with noted_losses(f"{theirs}.losses"):
        train_here(config, theirs)
    arguments = [text, "--validation", text, "--from", source, "--batch-size", 4, "-o", ours]
    elmo_train([*arguments, "--num-epochs", 2], f"{ours}.losses")
    assert_equal_runs(theirs, ours)
    initial = metrics(theirs)["initial_validation_perplexity"]
    line = f"before training: validation perplexity {initial:,.2f}\n"
    assert capsys.readouterr().out.count(line) == 2
    optimizer = {"trainer.optimizer": "adam"}
    config = write_config(tmp_path, data, {**changes, **adagrad, **optimizer})
    with pytest.raises(ConfigurationError, match="Adam keeps no sums of squared gradients"):
        train_here(config, tmp_path / "adam")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"validation_data_path": None}, "a validation_data_path"),
        ({"model.regularizer": {"regexes": [["softmax.*", "l2"]]}}, "neither a regularizer"),
        ({"trainer.optimizer": "adma"}, "optimizer is 'adma'; use adagrad or adam"),
        ({"trainer.num_epochs": 0}, "num_epochs is 0; it must be at least 1"),
        ({"trainer.callbacks": []}, "callbacks"),
        ({"trainer.adagrad_state": "nowhere.hdf5"}, "nowhere.hdf5"),
    ],
)
def test_what_is_refused(changes, message, data, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        train_here(write_config(tmp_path, data, changes), tmp_path / "run")


def test_an_imported_model_continues_like_a_run_that_never_stopped(tmp_path):
    """bilm-tf's checkpoint, with its sums of squared gradients, by both commands."""
    folder, text = tmp_path / "imported", REFERENCE / "data" / "train.txt"
    import_model(REFERENCE / "checkpoint", folder, REFERENCE / "data" / "vocab.txt")
    archive = str(folder / "model.tar.gz")
    reader = {"type": "truncated_bptt_lm", "batch_size": 16, "num_steps": 20}
    config = {
        "dataset_reader": {**reader, "shuffle_sentences": True},
        "validation_dataset_reader": {**reader, "drop_last": False},
        "train_data_path": str(text),
        "validation_data_path": str(text),
        "vocabulary": {"type": "from_files", "directory": archive},
        "model": {"type": "from_archive", "archive_file": archive},
        "data_loader": {"type": "truncated_bptt"},
        "trainer": {
            "type": "language_model",
            "num_epochs": 2,
            "validate_first": True,
            "adagrad_state": str(folder / "adagrad.hdf5"),
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with noted_losses(f"{theirs}.losses"):
        train_here(tmp_path / "config.json", theirs)
    options = ["--validation", text, "--from", folder, "-o", ours, "--num-epochs", 2]
    elmo_train([text, *options], f"{ours}.losses")
    assert losses(Path(f"{theirs}.losses")) == losses(Path(f"{ours}.losses")) != []


def test_two_processes_are_those_of_elmo_train_and_test_alone(data, tmp_path):
    """To the bit. The first process then evaluates on the whole test text."""
    test = {"test_data_path": str(data / "shards"), "evaluate_on_test": True}
    config = write_config(tmp_path, data, {**TWO, **test})
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    finish(start(config, theirs), theirs)
    size, text = write_size(config, tmp_path / "size.json"), data / "heldout.txt"
    vocabulary = ["--vocab", data / "vocabulary"]
    arguments = [text, "--validation", text, "--size", size, *vocabulary, "-o", ours]
    assert wait(elmo_train_runs.start_processes(2, free_port(), ours, *arguments)) == [0, 0]
    for rank in range(2):
        assert_equal_runs(theirs, ours, str(rank))
    assert losses(Path(f"{ours}.losses0")) != losses(Path(f"{ours}.losses1"))
    alone = evaluate_from_archive(str(theirs / "model.tar.gz"), test["test_data_path"])
    results = metrics(theirs)
    for kind in ("perplexity", "forward_perplexity", "backward_perplexity"):
        assert results[f"test_{kind}"] == pytest.approx(alone[kind], rel=1e-6)


@pytest.fixture(scope="module")
def sampled(data, tmp_path_factory):
    """A run of two processes."""
    folder = tmp_path_factory.mktemp("sampled")
    changes = {**TWO, "dataset_reader.drop_last": False}
    finish(start(write_config(folder, data, changes), folder / "whole"), folder / "whole")
    return folder / "whole"


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "number, word",
    [(signal.SIGKILL, ""), (signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")],
)
def test_two_processes_stopped(sampled, tmp_path, number, word):
    """`kill` signals the first process, Ctrl-C in a terminal all of them."""
    config, run = sampled.with_name("config.json"), tmp_path / "run"
    process = start(config, run, seconds=0.0 if number == signal.SIGKILL else 600.0)
    while not (run / "metrics_epoch_0.json").exists():
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
        content = torch.load(run / "checkpoint.pt")
        lines = Path(f"{run}.losses0").read_text(encoding="utf-8").splitlines()
        assert content["n_batches"] == json.loads(lines[-1])[0]
    finish(start(config, run), run)
    for rank in range(2):
        assert_equal_runs(run, sampled, str(rank))


def _start(rank, configs):
    """Return the error of a process."""
    with pytest.raises(ConfigurationError) as raised:
        train_here(configs[rank], configs[rank].parent)
    return str(raised.value)


@pytest.mark.in_turns(2)
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
        assert re.match("The vocabulary or the text of rank 1 differs", message)
