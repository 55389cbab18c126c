import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any, List

import pytest

from allennlp_elmo_plugin.errors import (
    Terminated,
    describe,
    end_by_signal,
    noted_signals,
    signal_of,
    terminable,
)
from tests.support.testing import fork


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_output_and_exit_functions_come_first(number: int, tmp_path: Path) -> None:
    def end() -> None:
        sys.stdout = open(tmp_path / "output", "w", encoding="utf-8")
        atexit.register(print, "the last line")
        end_by_signal(number)

    assert fork(end) == number
    assert (tmp_path / "output").read_text(encoding="utf-8") == "the last line\n"


def test_no_output() -> None:
    def end() -> None:
        read, write = os.pipe()
        os.close(read)
        sys.stdout, sys.stderr = open(write, "w"), None  # type: ignore[assignment]
        sys.stdout.write("to nobody")
        end_by_signal(signal.SIGINT)

    assert fork(end) == signal.SIGINT


def test_sigterm_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as raised, terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal_of(raised.value) == (signal.SIGTERM, "terminated")
    assert signal_of(KeyboardInterrupt()) == (signal.SIGINT, "interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_worker", [False, True])
def test_signals_are_noted(number: int, is_worker: bool, capfd: Any) -> None:
    noted: List[int] = []
    before = signal.getsignal(number)
    with noted_signals(noted, is_worker):
        signal.raise_signal(number)
        assert noted == [number]
        assert (fork(lambda: signal.raise_signal(number)) == number) != is_worker
    assert signal.getsignal(number) is before
    assert "Saving and ending after this batch" in capfd.readouterr().err


def test_an_ignored_signal_stays_ignored() -> None:
    noted: List[int] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup does
    try:
        with noted_signals(noted):
            signal.raise_signal(signal.SIGINT)
        assert noted == [] and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "error, text",
    [
        (ValueError("two\n  lines"), "two lines"),
        (ValueError(), "ValueError"),
        (ValueError("\x1b[1m"), "\\x1b[1m"),
        (FileNotFoundError(2, "No such file", "a.txt"), "a.txt: No such file"),
        (MemoryError("(2 GB)"), "not enough memory (2 GB)"),
        (ValueError("a" * 3000), "a" * 1000 + " ... " + "a" * 1000),
    ],
)
def test_describe(error: Exception, text: str) -> None:
    assert describe(error) == text
