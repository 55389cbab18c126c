import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest

from allennlp_elmo_plugin.progress import progress_bar


def test_stays_when_the_work_is_done(capsys: Any) -> None:
    with progress_bar(total=2, desc="counting") as bar:
        bar.update(2)
    shown = capsys.readouterr().err
    assert shown.endswith("\n") and "counting: 100%" in shown.split("\r")[-1]


def test_vanishes_before_an_error(capsys: Any) -> None:
    with pytest.raises(ValueError):
        with progress_bar(total=2, desc="counting"):
            raise ValueError("bad")
    *_, blank, last = capsys.readouterr().err.split("\r")
    assert blank.strip(" ") == "" and last == ""


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
