import io
import sys
from typing import Any

import pytest
import tqdm.std
from allennlp.common import logging as common_logging
from allennlp.common.tqdm import Tqdm

from allennlp_elmo_plugin.progress import (
    bars_on_terminals_only,
    progress_bar,
    progress_of_command,
    say,
    step_bar,
)


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return a standard error that is a terminal of 60 columns."""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    stream.fileno = lambda: 2  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time in seconds, which passes only when a test says so."""
    now = [1000.0]
    monkeypatch.setattr(tqdm.std, "time", lambda: now[0])
    return now


def test_stays_when_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2)
    shown = terminal.getvalue()
    assert shown.endswith("\n") and "counting: 100%" in shown.split("\r")[-1]


def test_vanishes_before_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with pytest.raises(ValueError):
        with progress_bar(total=2, desc="counting"):
            raise ValueError("bad")
    *_, blank, last = terminal.getvalue().split("\r")
    assert blank.strip(" ") == "" and last == ""


def test_lines_in_a_log_file(clock: Any, capsys: Any) -> None:
    with progress_bar(total=60, desc="counting") as bar:
        for _ in range(60):
            clock[0] += 1.0
            bar.update()
    lines = capsys.readouterr().err.split("\n")
    assert lines.pop() == ""
    assert not any("\r" in line or "\x1b" in line for line in lines)
    assert all(line.startswith("counting: ") for line in lines)
    assert 5 <= len(lines) <= 8 and "100%" in lines[-1]


def test_a_failure_leaves_no_line_in_a_log_file(capsys: Any) -> None:
    with pytest.raises(ValueError):
        with progress_bar(total=2, desc="counting"):
            raise ValueError("bad")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("in_terminal", [False, True])
def test_allennlps_setting(in_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", not in_terminal)
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2)
    assert ("\r" in terminal.getvalue()) == in_terminal
    assert "counting: 100%" in terminal.getvalue()


@pytest.mark.parametrize("kind", ["ours", "a step", "AllenNLP's", "a line"])
@pytest.mark.parametrize("quiet", [False, True])
def test_quiet(
    kind: str, quiet: bool, clock: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with progress_of_command(quiet):
        if kind == "ours":
            with progress_bar(total=2, desc="x") as bar:
                bar.update(2)
        elif kind == "a step":
            with step_bar("x", 2) as update:
                clock[0] += 30
                update(2)
        elif kind == "AllenNLP's":
            open_terminal(monkeypatch)
            with bars_on_terminals_only(Tqdm):
                assert list(Tqdm.tqdm([1, 2], desc="x")) == [1, 2]
            shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
            assert (shown == "") == quiet
            return
        else:
            say("x")
    shown = capsys.readouterr().err
    assert shown == "" if quiet else shown.strip().startswith("x")


def test_short_steps_and_those_outside_of_commands_are_not_shown(clock: Any, capsys: Any) -> None:
    with step_bar("outside", 2) as update:
        clock[0] += 3
        update(2)
    with progress_of_command():
        with step_bar("short", 2) as update:
            clock[0] += 0.5
            update(2)
    assert capsys.readouterr().err == ""


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2 - bar.n)
        bar.set_postfix_str("two")
