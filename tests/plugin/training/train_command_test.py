"""What `allennlp train` of a language model prints when it ends, stops or fails."""

import errno
import json
import logging
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from allennlp.commands import main, train
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.training import evaluate, trainer
from tests.support.testing import read_files
from tests.support.training_runs import (
    GRADIENT_DESCENT,
    WriteLosses,
    metrics,
    noted_losses,
    write_config,
)


@pytest.fixture(scope="module")
def config(data, tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("config"), data, {})


@pytest.fixture(scope="module")
def whole(config):
    """The folder of a run that was never stopped."""
    folder = config.with_name("run")
    with noted_losses(f"{folder}.losses"):
        train.train_model_from_file(str(config), folder)
    return folder


def run(*arguments, status=None, program="/bin/allennlp"):
    """Run `allennlp train`, which ends with an exit status if it is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, "train", *map(str, arguments)])
        if status is None:
            main()
        else:
            with pytest.raises(SystemExit) as raised:
                main()
            assert raised.value.code == status


@pytest.mark.parametrize(
    "number, during", [(signal.SIGINT, 9), (signal.SIGINT, 0), (signal.SIGTERM, 9)]
)
def test_interrupted_and_recovered(number, during, config, whole, tmp_path, monkeypatch, capsys):
    """After the ninth batch, or in the first validation."""
    folder, log = tmp_path / "my run", tmp_path / "my run.losses"
    overrides = '{"trainer.grad_norm": 10.0}'

    sent = []

    def send(*_):
        if not sent:
            sent.append(number)
            signal.raise_signal(number)

    if not during:
        monkeypatch.setattr(trainer, "evaluate", lambda *args: send() or evaluate(*args))
    with noted_losses(log, during, send):
        run(config, "-f", "-s", folder, "-o", overrides, status=128 + number)
    error = capsys.readouterr().err
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert error.splitlines()[-1] == (
        f"{word}; continue with: allennlp train {config} -s '{folder}' -o '{overrides}' --recover"
    )
    assert "Traceback" not in error
    assert (folder / "model.tar.gz").exists() == (not during)  # of the best epoch so far

    with noted_losses(log):
        run(config, "-s", folder, "-o", overrides, "--recover")
    assert metrics(folder) == metrics(whole)
    assert (folder / "best.th").read_bytes() == (whole / "best.th").read_bytes()
    # It trained no batch twice.
    assert log.read_bytes() == Path(f"{whole}.losses").read_bytes()
    lines = capsys.readouterr().out.splitlines()[-7:]
    assert lines[0].split() == ["training", "validation"]
    names = ["perplexity", "forward_perplexity", "backward_perplexity", "loss", "unknown_words"]
    assert [line.split()[0] for line in lines[1:6]] == names
    best = metrics(folder)["best_epoch"]
    assert lines[6] == f"The model (the best epoch, {best}) is in {folder}/model.tar.gz"


def test_stopped_before_anything_is_saved(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "train_model", MagicMock(side_effect=KeyboardInterrupt))
    monkeypatch.chdir(tmp_path)
    for program, shown in (
        ("/some/allennlp_elmo_plugin/__main__.py", "python -m allennlp_elmo_plugin"),
        ("/bin/allennlp-elmo-plugin", "allennlp-elmo-plugin"),
    ):
        run(config, "-f", "-s", "run", status=130, program=program)
        assert capsys.readouterr().err.splitlines()[-1] == (
            "interrupted before anything was saved; start again with: "
            f"{shown} train {config} -s run"
        )
    monkeypatch.setattr(sys, "argv", ["mine.py", "train"])
    with pytest.raises(KeyboardInterrupt):  # the function, in a user's own programs
        train.train_model_from_file(str(config), str(tmp_path / "run"))


@pytest.mark.parametrize(
    "config_file, folder, changes, message",
    [
        ("none.jsonnet", "run", {}, "file none.jsonnet not found"),
        ("x/pretrain/demo.jsonnet", "run", {}, "found; `allennlp elmo-configs training_config` c"),
        ("folder", "run", {}, "The config folder is a folder; give a file in it"),
        ("text", "run", {}, "STATIC ERROR: text:1:"),
        ("import.json", "run", {}, "RUNTIME ERROR: no! lib:1"),
        ("unset.json", "run", {}, "unset.json needs NOT_SET in the environment: export NOT_SET="),
        ("config.json", "run", "{bad", "STATIC ERROR: "),
        ("config.json", "text", {}, "The folder text can't be made (File exists); choose another"),
        ("config.json", "folder", {}, "(folder) already exists and is not empty. Specify --recov"),
        ("config.json", "run", {"train_data_path": "no"}, "no does not exist"),
        ("config.json", "run", {"trainer.num_epoch": 3}, "num_epoch"),
        ("config.json", "run", {"trainer.num_epochs": "3"}, "Expected num_epochs to be a int."),
        ("config.json", "run", {"trainer.validation_metric": "loss"}, "validation_metric"),
        ("config.json", "run", {"trainer.learning_rate": -1}, "learning_rate is -1"),
        ("config.json", "run", {"trainer.learning_rate": 1e30}, "Lower the learning rate"),
        ("config.json", "run", {"trainer.optimizer": "adma"}, "'adma'; use adagrad or adam"),
        ("config.json", "run", {"dataset_reader.nun_steps": 9}, "nun_steps"),
        ("config.json", "run", {"dataset_reader.max_characters_per_token": 9}, "set max_charact"),
        ("config.json", "run", {"model.optoins.dropout": 0.2}, "unused keys: ['model.optoins.dr"),
        ("config.json", "run", {"model.state_reset": None}, "state_reset is None"),
        ("config.json", "run", {"model.num_samples": 2.5}, "Failed to construct argument num_s"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    config_file, folder, changes, message, config, tmp_path, monkeypatch, capsys
):
    shutil.copy(config, tmp_path)
    (tmp_path / "text").write_text("A sentence .\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    (tmp_path / "lib").write_text("error 'no!'")
    (tmp_path / "import.json").write_text("import 'lib'")
    (tmp_path / "unset.json").write_text("{ a: std.extVar('NOT_SET') }")
    monkeypatch.chdir(tmp_path)
    before = read_files(tmp_path)
    overrides = json.dumps(changes) if isinstance(changes, dict) else changes
    run(config_file, "-s", folder, "-o", overrides, status=1)
    output = capsys.readouterr()
    assert "Traceback" not in output.out + output.err
    line = output.err.splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert read_files(tmp_path) == before and not (tmp_path / "run").exists()


def test_a_full_disk_is_one_line(config, tmp_path, monkeypatch, capsys):
    """Also if AllenNLP writes the file, after many lines of the log that can't be written."""

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(logging.FileHandler, "flush", fail)
    monkeypatch.setattr(Vocabulary, "save_to_files", fail)
    run(config, "-s", tmp_path / "run", status=1)
    output = capsys.readouterr()
    assert "Traceback" not in output.out + output.err
    assert output.err.splitlines()[-1] == "error: [Errno 28] No space left on device"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("function", [int, open])
def test_faults_of_users_code_keep_their_traceback(function, data, tmp_path, monkeypatch):
    def fail(self, serialization_dir):
        function("fault")

    monkeypatch.setattr(WriteLosses, "__init__", fail)
    config = write_config(tmp_path, data, {"trainer": GRADIENT_DESCENT})
    with pytest.raises((ValueError, OSError), match="fault"):
        run(config, "-s", tmp_path / "run")


def test_other_models_are_allennlps(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"model": "simple_tagger"}', encoding="utf-8")
    monkeypatch.setattr(train, "train_model", MagicMock(side_effect=ConfigurationError("wrong")))
    with pytest.raises(ConfigurationError):
        run(tmp_path / "config.json", "-s", tmp_path / "run")
    monkeypatch.setattr(train, "train_model", MagicMock(side_effect=KeyboardInterrupt))
    for line in ("interrupted", "interrupted; continue with: allennlp train .* --recover"):
        run(tmp_path / "config.json", "-s", tmp_path / "run", status=130)
        assert re.fullmatch(line, capsys.readouterr().err.splitlines()[-1])
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "best.th").touch()
