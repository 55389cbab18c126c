import io
import sys
from unittest.mock import Mock

import pytest
import tqdm.std
from allennlp.common import logging as common_logging

from allennlp_elmo_plugin import progress
from allennlp_elmo_plugin.progress import progress_bar, progress_of_command, skip_to, step_bar


def open_terminal(monkeypatch):
    """Let standard error be a terminal; return what it shows."""
    stream = Mock(wraps=io.StringIO(), isatty=lambda: True, fileno=lambda: 2)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)
    return stream


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, which passes only when a test says so."""
    now = [1000.0]
    monkeypatch.setattr(tqdm.std, "time", lambda: now[0])
    return now


def count():
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2)


def test_a_terminal_keeps_the_bar_of_work_that_is_done(monkeypatch):
    terminal = open_terminal(monkeypatch)
    count()
    assert terminal.getvalue().endswith("\n")
    assert "counting: 100%" in terminal.getvalue().split("\r")[-1]
    with pytest.raises(ValueError), progress_bar(total=2, desc="counting"):
        raise ValueError("bad")
    *_, blank, last = terminal.getvalue().split("\r")
    assert blank.strip(" ") == "" and last == ""


def test_what_an_earlier_run_did_has_no_part_in_the_speed(monkeypatch, clock):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress.time, "time", lambda: clock[0])
    with progress_bar(total=100, desc="counting") as bar:
        clock[0] += 1
        skip_to(bar, 60)
        clock[0] += 10
        bar.update(10)
        assert " 70/100 [00:10<00:30,  1.00it/s]" in terminal.getvalue()
    with progress_of_command(quiet=True), progress_bar(total=100) as bar:
        skip_to(bar, 60)


def test_a_log_file_has_a_line_each_ten_seconds(clock, capsys):
    with progress_bar(total=60, desc="counting") as bar:
        for _ in range(60):
            clock[0] += 1.0
            bar.update()
    *lines, end = capsys.readouterr().err.split("\n")
    assert end == "" and all(line.startswith("counting: ") for line in lines)
    assert not any("\r" in line or "\x1b" in line for line in lines)
    assert 5 <= len(lines) <= 8 and "100%" in lines[-1]
    with pytest.raises(ValueError), progress_bar(total=2, desc="counting"):
        raise ValueError("bad")
    assert capsys.readouterr().err == ""


def test_settings_of_the_process(monkeypatch, capsys):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", True)
    count()
    assert "\r" not in terminal.getvalue() and "counting: 100%" in terminal.getvalue()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", sys)
    count()
    assert "\r" in capsys.readouterr().err  # A notebook rewrites lines.
    monkeypatch.setattr(sys, "stderr", None)
    count()


@pytest.mark.parametrize("quiet", [False, True])
def test_steps_that_take_long(quiet, clock, capsys):
    def step(seconds):
        with step_bar("a step", 2) as update:
            clock[0] += seconds
            update(2)
        return capsys.readouterr().err

    with progress_of_command(quiet):
        count()
        assert (capsys.readouterr().err == "") == quiet
        assert (step(30) == "") == quiet
        assert step(1.9) == ""  # It is short.
    count()
    assert "counting: 100%" in capsys.readouterr().err
