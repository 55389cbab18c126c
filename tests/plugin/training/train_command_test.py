"""What `allennlp train` of a language model prints when it ends, stops or fails."""

import errno
import json
import logging
import os
import re
import shutil
import signal
import sys
from unittest.mock import MagicMock

import pytest
from allennlp.commands import main, train
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from tests.support.testing import read_files
from tests.support.training_runs import WriteLosses, assert_equal_runs, metrics, write_config


@pytest.fixture(scope="module")
def config(data, tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("config"), data, {})


@pytest.fixture(scope="module")
def whole(config):
    """The folder of a run that was never stopped."""
    train.train_model_from_file(str(config), config.with_name("run"))
    return config.with_name("run")


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
    "number, training", [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_interrupted_and_recovered(number, training, config, whole, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my run"
    overrides = '{"trainer.grad_norm": 10.0}'
    sent = []

    def send(callback, n_batches, is_training):
        """After the ninth batch, or in the first validation."""
        if not sent and n_batches >= 9 and is_training == training:
            sent.append(number)
            signal.raise_signal(number)

    monkeypatch.setattr(WriteLosses, "after_batch", send)
    run(config, "-f", "-s", folder, "-o", overrides, status=128 + number)
    error = capsys.readouterr().err
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert error.splitlines()[-1] == (
        f"{word}; continue with: allennlp train {config} -s '{folder}' -o '{overrides}' --recover"
    )
    assert "Traceback" not in error
    point = "e0_b9" if training else "e1_b1"
    assert (folder / f"training_state_{point}.th").exists()
    assert (folder / "model.tar.gz").exists() != training  # of the best epoch so far

    run(config, "-s", folder, "-o", overrides, "--recover")
    assert_equal_runs(folder, whole)
    # It trained no batch twice.
    assert (folder / "losses0.jsonl").read_bytes() == (whole / "losses0.jsonl").read_bytes()
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
        ("config.json", "run", {"trainer.num_epoch": 3}, "there is no setting num_epoch"),
        ("config.json", "run", {"trainer.num_epochs": "3"}, "Expected num_epochs to be a int."),
        ("config.json", "run", {"trainer.validation_metric": "loss"}, "must start with + or -"),
        ("config.json", "run", {"trainer.validation_metric": "-los"}, "metric has 'los'"),
        ("config.json", "run", {"trainer.use_amp": True}, 'set "precision": "bfloat16" in the mo'),
        ("config.json", "run", {"trainer.optimizer.lr": -1}, "Invalid learning rate: -1"),
        ("config.json", "run", {"trainer.optimizer.lr": 1e30}, "became NaN: lower the learning"),
        ("config.json", "run", {"trainer.optimizer.type": "adma"}, "adma not in acceptable choic"),
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
def test_faults_of_users_code_keep_their_traceback(function, config, tmp_path, monkeypatch):
    def fail(self, serialization_dir):
        function("fault")

    monkeypatch.setattr(WriteLosses, "__init__", fail)
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
