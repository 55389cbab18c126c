import atexit
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import pytest

from allennlp_elmo_plugin.exits import describe, end_with, noted_signals, run_or_end
from tests.support.testing import fork

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@SIGNALS
def test_a_command_ends_by_the_signal_after_its_exit_functions(number, capfd):
    def end():
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        atexit.register(print, "the last line")
        end_with("a line", 3, number)

    assert fork(end) == number
    assert capfd.readouterr() == ("the last line\n", "a line\n")
    with pytest.raises(SystemExit, match="3"):
        end_with("a line", 3)
    assert capfd.readouterr().err == "a line\n"


def test_signals_end_work_by_a_line(capsys):
    before = signal.getsignal(signal.SIGTERM)
    for number, word in ((signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")):
        with pytest.raises(SystemExit, match=str(128 + number)):
            run_or_end(partial(signal.raise_signal, number), str, lambda: ", go on", 1)
        assert capsys.readouterr().err == f"{word}, go on\n"
        assert signal.getsignal(signal.SIGTERM) is before
    status = 128 + signal.SIGPIPE if os.name != "nt" else 1  # as with `| head`
    with pytest.raises(SystemExit, match=str(status)):
        run_or_end(Mock(side_effect=BrokenPipeError), str, str, 1)
    assert capsys.readouterr().err == ""


@SIGNALS
@pytest.mark.parametrize("is_worker", [False, True])
def test_the_first_signal_is_noted(number, is_worker, capfd):
    noted = []
    before = signal.getsignal(number)
    with noted_signals(noted, is_worker):
        signal.raise_signal(number)
        assert noted == [number]
        assert (fork(lambda: signal.raise_signal(number)) == number) != is_worker
    assert signal.getsignal(number) is before
    assert "Saving and ending after this batch" in capfd.readouterr().err


def test_where_signals_can_not_be_handled(monkeypatch):
    noted = []
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # as after nohup
    with pytest.raises(KeyboardInterrupt), noted_signals(noted):
        signal.raise_signal(signal.SIGINT)
    assert noted == []
    monkeypatch.undo()

    def in_a_thread():
        with noted_signals(noted):
            return run_or_end(lambda: True, str, str, 1)

    with ThreadPoolExecutor() as pool:
        assert pool.submit(in_a_thread).result()


@pytest.mark.parametrize(
    "error, text",
    [
        (ValueError("two\n  lines\n"), "two lines"),
        (ValueError("東京  naïve"), "東京  naïve"),
        (ValueError(), "ValueError"),
        (ValueError("\x1b[2Jred\0\u202e\udce9"), r"\x1b[2Jred\x00\u202e\udce9"),
        (FileNotFoundError(2, "No such file", "a.txt"), "a.txt: No such file"),
        (PermissionError(13, "Permission denied", b"caf\xe9"), r"caf\udce9: Permission denied"),
        (OSError("another process"), "another process"),
        (MemoryError("(2 GB)"), "not enough memory (2 GB)"),
    ],
)
def test_an_error_is_one_line(error, text):
    assert describe(error) == text
