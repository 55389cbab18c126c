import io
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tqdm.std
from allennlp.common import logging as common_logging
from allennlp.common.tqdm import Tqdm

from allennlp_elmo_plugin import progress
from allennlp_elmo_plugin.progress import (
    progress_bar,
    progress_of_command,
    say,
    step_bar,
    titled_bars,
)


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return a standard error that is a terminal of 60 columns."""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    stream.fileno = lambda: 2  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((60, 24)))
    return stream


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time in seconds, which passes only when a test says so."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
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


def test_few_lines_in_a_log_file(clock: Any, capsys: Any) -> None:
    with progress_bar(total=36000, desc="counting") as bar:
        for _ in range(36000):  # ten hours
            clock[0] += 1.0
            bar.update()
    lines = capsys.readouterr().err.split("\n")
    assert lines.pop() == ""
    assert not any("\r" in line or "\x1b" in line for line in lines)
    assert all(line.startswith("counting: ") for line in lines)
    assert "| 10/36000 [00:10<9:59:50" in lines[0]
    assert "100%" in lines[-1] and "100%" not in lines[-2]
    assert 100 < len(lines) < 140


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
def test_quiet(kind: str, quiet: bool, clock: Any, capsys: Any) -> None:
    with progress_of_command(quiet):
        if kind == "ours":
            with progress_bar(total=2, desc="x") as bar:
                bar.update(2)
        elif kind == "a step":
            with step_bar("x", 2) as update:
                clock[0] += 3
                update(2)
        elif kind == "AllenNLP's":
            assert list(Tqdm.tqdm([1, 2], desc="x")) == [1, 2]
        else:
            say("x")
    shown = capsys.readouterr().err
    assert shown == "" if quiet else shown.startswith("x")


def test_short_steps_and_those_outside_of_commands_are_not_shown(clock: Any, capsys: Any) -> None:
    with step_bar("outside", 2) as update:
        clock[0] += 3
        update(2)
    with progress_of_command():
        with step_bar("short", 2) as update:
            clock[0] += 0.5
            update(2)
    assert capsys.readouterr().err == ""


def test_titles_of_allennlps_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with titled_bars("epoch 1/2", "abc") as title:
        bar = Tqdm.tqdm(iter("abc"), desc="reading")
        for _ in bar:
            title.note = "1,234 words/s"
            bar.set_description("perplexity: 12.3456, loss: 2.3456, more: 1.2345 ||", refresh=False)
    *_, last = terminal.getvalue().split("\r")
    # What does not fit is cut off at the end.
    assert len(last.rstrip("\n")) == 59
    assert re.match(r"epoch 1/2, reading: 100%\|#\| 3/3 \[00:00<00:00, ", last)
    assert "1,234 words/s, perplexity: 12.3456, loss" in bar.format_meter(
        **{**bar.format_dict, "ncols": None}
    )
    # Without a title, as AllenNLP makes them.
    bar = Tqdm.tqdm(range(3))
    for _ in bar:
        bar.set_description("loss: 2.3456 ||", refresh=False)
    *_, last = terminal.getvalue().split("\r")
    assert re.match(r"100%\|#+\| 3/3 \[.*, loss: 2.3456\]\n", last)


def test_allennlps_log(tmp_path: Path, capsys: Any) -> None:
    """The out.log of a training run has the bars, as with AllenNLP's own."""
    logger = logging.getLogger("tqdm")
    handler = logging.FileHandler(tmp_path / "out.log")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        list(Tqdm.tqdm(range(3)))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert (tmp_path / "out.log").read_text().startswith("100%")


def test_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2 - bar.n)
        bar.set_postfix_str("two")


@pytest.mark.parametrize("held_by", ["another process", "another thread"])
def test_waits_for_no_process_that_is_gone(held_by: str) -> None:
    """A process that was killed while it drew keeps its lock, and so does a fork its copy."""
    with progress_bar(total=2) as bar:
        lock = bar.get_lock()
    if held_by == "another thread":
        holder: Any = threading.Thread(target=lock.acquire)
    else:
        holder = multiprocessing.get_context("fork").Process(target=_hold_locks, args=(lock,))
    holder.start()
    holder.join()
    try:
        child = multiprocessing.get_context("fork").Process(target=_draw)
        child.start()
        child.join(20)
        assert child.exitcode == 0
    finally:
        child.kill()
        if held_by == "another thread":
            type(bar).renew_lock()
    _draw()


def _hold_locks(lock: Any) -> None:
    lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def _draw() -> None:
    with progress_bar(total=2) as bar:
        bar.update(2)
