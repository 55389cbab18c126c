"""What `allennlp train` of a language model prints in the end, of whichever kind the end is."""

import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest
from allennlp.commands import train
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import install_sigterm_handler
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.errors import Terminated
from allennlp_elmo_plugin.training import run_folder, saving, train_command
from tests.support.training_runs import assert_equal_runs, losses, metrics, write_config


@TrainerCallback.register("send_signal")
class SendSignal(TrainerCallback):
    """Sends a signal to this process after the ninth batch, or in the first validation, once."""

    number = 0
    in_training = True

    def on_batch(self, trainer: Any, *args: Any, is_training: bool, **kwargs: Any) -> None:
        is_late = trainer._total_batches_completed >= 9
        if SendSignal.number and is_late and is_training == SendSignal.in_training:
            number, SendSignal.number = SendSignal.number, 0
            signal.raise_signal(number)


@TrainerCallback.register("with_a_fault")
class WithAFault(TrainerCallback):
    """A user's own, which can't be made."""

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        int("fault")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    argv = ["/bin/allennlp", "train"]
    monkeypatch.setattr(sys, "argv", argv)
    return argv


CHANGES = {
    "trainer.callbacks": ["write_losses", "send_signal"],
    "trainer.num_epochs": 2,
    "dataset_reader.num_steps": 20,
}


@pytest.fixture
def config(data: Path, tmp_path: Path) -> Path:
    return write_config(tmp_path, data, CHANGES)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train.train_model_from_file(str(write_config(folder, data, CHANGES)), folder / "run", "")
    return folder / "run"


@pytest.fixture
def _sigterm_raises() -> Iterator[None]:
    """As in AllenNLP's program."""
    handler = signal.getsignal(signal.SIGTERM)
    install_sigterm_handler()
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("_sigterm_raises")
@pytest.mark.parametrize(
    "number, in_training",
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, True)],
)
def test_interrupted_and_recovered(
    number: int,
    in_training: bool,
    config: Path,
    whole: Path,
    tmp_path: Path,
    command: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    folder = tmp_path / "my run"
    arguments = {"parameter_filename": str(config), "serialization_dir": str(folder)}
    overrides = '{"trainer.grad_norm": 10.0}'
    monkeypatch.setattr(SendSignal, "number", number)
    monkeypatch.setattr(SendSignal, "in_training", in_training)
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(**arguments, overrides=overrides, force=True)
    assert raised.value.code == 128 + number
    error = capsys.readouterr().err
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert error.splitlines()[-1] == (
        f"{word}; continue with: allennlp train {config} -s '{folder}' --recover -o '{overrides}'"
    )
    assert "Traceback" not in error
    n_batches = sum(epoch == 0 for epoch, _ in losses(whole))
    assert len(losses(folder)) == (9 if in_training else n_batches)
    point = "e0_b9" if in_training else "e1_b0"
    assert (folder / f"training_state_{point}.th").exists()

    assert train.train_model_from_file(**arguments, overrides=overrides, recover=True)
    assert_equal_runs(folder, whole)
    # No batch was trained twice.
    assert (folder / "losses.jsonl").read_bytes() == (whole / "losses.jsonl").read_bytes()
    lines = capsys.readouterr().out.splitlines()[-6:]
    assert lines[0].split() == ["training", "validation"]
    assert [line.split()[0] for line in lines[1:5]] == [
        "perplexity",
        "forward_perplexity",
        "backward_perplexity",
        "loss",
    ]
    best = metrics(folder)["best_epoch"]
    assert lines[5] == f"The model (the best epoch, {best}) is in {folder}/model.tar.gz"


def test_checkpoints_by_time(
    config: Path, tmp_path: Path, command: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes have passed, by the clock of this training, when the ninth batch ends."""

    class Clock:
        monotonic = time.monotonic

        @staticmethod
        def time() -> float:
            path = tmp_path / "run" / "losses.jsonl"
            n_batches = len(path.read_bytes().splitlines()) if path.exists() else 0
            return time.time() + 601 * (n_batches >= 9)

    monkeypatch.setattr(saving, "time", Clock)
    monkeypatch.setattr(SendSignal, "number", signal.SIGINT)
    overrides = {"trainer.checkpointer": {"keep_most_recent_by_count": None}}
    with pytest.raises(SystemExit):
        train.train_model_from_file(str(config), tmp_path / "run", json.dumps(overrides))
    assert [path.name for path in tmp_path.glob("run/model_state_*")] == ["model_state_e0_b9.th"]


@pytest.mark.parametrize("error, status", [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_before_the_run_has_a_config(
    error: Any,
    status: int,
    config: Path,
    tmp_path: Path,
    command: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise error

    command[0] = "/somewhere/allennlp_elmo_plugin/__main__.py"
    monkeypatch.setattr(train, "train_model", stop)
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(str(config), str(tmp_path / "run"), include_package=["mine"])
    assert raised.value.code == status
    word = "interrupted" if status == 130 else "terminated"
    assert capsys.readouterr().err == (
        f"{word} before anything was saved; start again with: python -m allennlp_elmo_plugin train "
        f"{config} -s {tmp_path}/run --include-package mine\n"
    )
    # The function, in a user's own programs.
    for arguments in (["mine.py", "one"], ["mine.py", "train"]):
        command[:] = arguments
        with pytest.raises(error):
            train.train_model_from_file(str(config), str(tmp_path / "run"))


class Closed(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_ctrl_c_for_a_pipeline(
    config: Path, tmp_path: Path, command: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `allennlp train ... 2>&1 | tee log`: the signal ends `tee`, too."""

    def stop(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(sys, "stderr", Closed())
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_model", stop)
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(str(config), str(tmp_path / "run"))
    assert raised.value.code == 130


@pytest.mark.parametrize(
    "before, written, given, is_saved",
    [
        ([], [], [], False),
        ([], [], ["force"], False),
        ([], ["config.json"], [], False),
        ([], ["config.json", "model_state_e0_b7.th"], [], True),
        (["config.json", "best.th"], None, [], False),  # It will be refused.
        (["config.json", "best.th"], None, ["recover"], True),
        (["config.json", "best.th"], [], ["force"], False),  # All was removed.
        (["config.json", "best.th"], ["config.json"], ["force"], False),
        (["config.json", "best.th"], ["config.json", "best.th"], ["force"], True),
    ],
)
def test_the_advice_is_for_the_run_of_the_call(
    before: List[str],
    written: Optional[List[str]],
    given: List[str],
    is_saved: bool,
    config: Path,
    tmp_path: Path,
    command: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    """It is stopped before the folder is looked at, or after its run has written some files."""
    folder = tmp_path / "run"

    def write(names: List[str]) -> None:
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text("{}", encoding="utf-8")

    def stop(*args: Any, **kwargs: Any) -> None:
        write(written or [])
        raise KeyboardInterrupt

    if before:
        write(before)
    where, name = (train, "train_model") if written is None else (run_folder, "_train_model")
    monkeypatch.setattr(where, name, stop)
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(str(config), str(folder), **dict.fromkeys(given, True))
    assert raised.value.code == 130
    advice = capsys.readouterr().err.splitlines()[-1]
    command_ = f"allennlp train {config} -s {folder}"
    if is_saved:
        assert advice == f"interrupted; continue with: {command_} --recover"
    else:
        assert advice == f"interrupted before anything was saved; start again with: {command_}"
        assert written is None or not {"config.json", "best.th"} & set(os.listdir(folder))


def test_positional_arguments(config: Path, tmp_path: Path, command: List[str]) -> None:
    """All of AllenNLP's."""
    overrides = '{"trainer.callbacks": []}'
    settings: Any = (False, False, 0, None, True, False, False)
    assert train.train_model_from_file(config, tmp_path / "run", overrides, *settings) is None
    assert not (tmp_path / "run" / "metrics.json").exists()  # a dry run


def test_config_in_the_home_of_the_user(
    config: Path, tmp_path: Path, command: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in quotes, or from a program without a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    overrides = '{"trainer.callbacks": []}'
    train.train_model_from_file("~/config.json", tmp_path / "run", overrides, dry_run=True)


def test_mistakes_have_one_line(
    config: Path, tmp_path: Path, command: List[str], capsys: Any
) -> None:
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(str(config), str(tmp_path / "run"), '{"train_data_path": "no"}')
    assert raised.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: no does not exist") and error.count("\n") == 1
    (tmp_path / "unset.jsonnet").write_text("{ a: std.extVar('NOT_SET') }", encoding="utf-8")
    with pytest.raises(SystemExit):
        train.train_model_from_file(str(tmp_path / "unset.jsonnet"), str(tmp_path / "run"))
    assert "export NOT_SET=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config, folder, overrides, message",
    [
        ("none.jsonnet", "run", "", "There is no config none.jsonnet .*elmo-configs FOLDER"),
        ("folder", "run", "", "The config folder is a folder; give a file in it"),
        ("text", "run", "", "text can't be read as a config: STATIC ERROR: text:1:"),
        ("import.json", "run", "", "import.json can't be read .*: RUNTIME ERROR: no! lib:1"),
        ("config.json", "run", "{bad", "the overrides, -o '{bad', can't be read as a config: "),
        ("config.json", "text", "", "can't be saved in text: text is a file; give a new folder"),
        ("config.json", "text/run", "", "can't be saved in text/run: text is a file"),
        ("config.json", "/proc/run", "", "The folder /proc/run can't be made"),
    ],
)
def test_wrong_arguments(
    config: str,
    folder: str,
    overrides: str,
    message: str,
    data: Path,
    tmp_path: Path,
    command: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    write_config(tmp_path, data, {})
    (tmp_path / "text").write_text("A sentence .\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "lib").write_text("error 'no!'")
    (tmp_path / "import.json").write_text("import 'lib'")
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(config, folder, overrides)
    assert raised.value.code == 1
    error = capsys.readouterr().err
    assert re.match(f"error: .*{message}", error) and error.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_a_failed_start_leaves_nothing(
    config: Path, tmp_path: Path, command: List[str], capsys: Any
) -> None:
    overrides = '{"dataset_reader.max_characters_per_token": 9}'
    with pytest.raises(SystemExit):
        train.train_model_from_file(str(config), str(tmp_path / "run"), overrides)
    output = capsys.readouterr()
    assert "Traceback" not in output.out + output.err
    message = "set its max_characters_per_token to 50"
    assert output.err.splitlines()[-1].startswith("error: ") and message in output.err
    assert train.train_model_from_file(str(config), str(tmp_path / "run"))


@pytest.mark.parametrize(
    "setting, value, message",
    [
        ("trainer.num_epoch", 3, "there is no setting num_epoch; did you mean num_epochs?"),
        ("trainer.num_epochs", "3", "Expected num_epochs to be a int."),
        ("trainer.validation_metric", "perplexity", "must be one of -perplexity, -forward_"),
        ("trainer.validation_metric", ["-loss", "-loss_"], "validation_metric is '-loss_'"),
        ("trainer.patience", "2", "Expected patience to be a int."),
        ("trainer.optimizer.lr", -1, "Invalid learning rate: -1"),
        ("trainer.optimizer.type", "adma", "adma not in acceptable choices for trainer.optimizer"),
        ("dataset_reader.nun_steps", 9, "unexpected keyword argument 'nun_steps'"),
        ("model.optoins.dropout", 0.2, "unused keys: ['model.optoins.dropout']"),
        ("model.recurent_dropout", 0.1, "model: bidirectional_lm has no setting recurent_dropout;"),
        ("model.recurent_dropout", 0.1, "; did you mean recurrent_dropout?"),
        ("model.recurrent_dropout", None, "recurrent_dropout is None; it must be a number, at lea"),
        ("model.state_reset", None, "state_reset is None; it must be a number, at least 0 and"),
        ("model.state_reset", "0.1", "Expected state_reset to be numeric."),
        ("model.dropout", "0.1", "dropout"),
        ("model.num_samples", 2.5, "Failed to construct argument num_samples"),
    ],
)
def test_wrong_settings_have_one_line(
    setting: str,
    value: Any,
    message: str,
    config: Path,
    tmp_path: Path,
    command: List[str],
    capsys: Any,
) -> None:
    overrides = json.dumps({setting: value, "data_loader.type": "truncated_bptt"})
    with pytest.raises(SystemExit) as raised:
        train.train_model_from_file(str(config), str(tmp_path / "run"), overrides)
    assert raised.value.code == 1
    output = capsys.readouterr()
    assert "Traceback" not in output.out + output.err
    assert output.err.splitlines()[-1].startswith("error: ") and message in output.err


def test_results_without_a_best_epoch(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    """A user's own callback may save weights as the best before an epoch is validated."""
    values = '{"best_epoch": null, "training_loss": 1.5}'
    (tmp_path / "metrics.json").write_text(values, encoding="utf-8")
    train_command._print_results(tmp_path)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"The model is in {tmp_path}/model.tar.gz"
    assert not caplog.text


def test_a_training_that_diverged_is_named(tmp_path: Path, caplog: Any) -> None:
    values = '{"best_validation_perplexity": Infinity, "best_validation_loss": 184502256.0}'
    (tmp_path / "metrics.json").write_text(values, encoding="utf-8")
    train_command._print_results(tmp_path)
    assert "The training has diverged" in caplog.text


def test_faults_of_users_code_keep_their_traceback(
    config: Path, tmp_path: Path, command: List[str]
) -> None:
    overrides = json.dumps({"trainer.callbacks": ["with_a_fault"]})
    with pytest.raises(ValueError, match="fault"):
        train.train_model_from_file(str(config), str(tmp_path / "run"), overrides)


def test_other_models_are_allennlps(
    tmp_path: Path, command: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(train, "train_model", fail)
    (tmp_path / "config.json").write_text('{"model": "simple_tagger"}', encoding="utf-8")
    for error in (ConfigurationError("wrong"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            train.train_model_from_file(str(tmp_path / "config.json"), str(tmp_path / "run"))


def test_is_allennlps_function() -> None:
    assert train.train_model_from_file is train_command.train_model_from_file
