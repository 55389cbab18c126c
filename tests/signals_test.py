import atexit
import itertools
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, List
from unittest.mock import patch

import pytest
from allennlp.common.util import SigTermReceived, install_sigterm_handler

from allennlp_elmo_plugin import signals
from allennlp_elmo_plugin.signals import (
    Terminated,
    end_by_signal,
    let_signals_kill,
    lost_signals_sent_again,
    signals_blocked,
    signals_first,
    signals_kept,
    terminable,
)
from tests.support.testing import another_thread, fork


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_output_and_exit_functions_come_first(number: int, before: Any, tmp_path: Path) -> None:
    def end() -> None:
        signal.signal(number, before)
        sys.stdout = open(tmp_path / "output", "w", encoding="utf-8")
        atexit.register(print, "the last line")
        end_by_signal(number)

    assert fork(end) == number
    assert (tmp_path / "output").read_text(encoding="utf-8") == "the last line\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_another_signal_during_the_end(number: int) -> None:
    def end() -> None:
        signal.signal(number, signal.default_int_handler)
        atexit.register(time.sleep, 100)
        atexit.register(os.kill, os.getpid(), number)  # the last comes first
        end_by_signal(signal.SIGINT)

    assert fork(end) == number


def test_an_ignored_signal_is_ignored() -> None:
    """As SIGINT in a shell's background job, and in the processes of its data loader."""

    def end() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        let_signals_kill()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    assert fork(end) == signal.SIGTERM


def test_no_output() -> None:
    def end() -> None:
        read, write = os.pipe()
        os.close(read)
        sys.stdout, sys.stderr = open(write, "w"), None  # type: ignore[assignment]
        sys.stdout.write("to nobody")
        end_by_signal(signal.SIGINT)

    assert fork(end) == signal.SIGINT


def test_in_a_thread() -> None:
    """Handlers, and thus the end by a signal, belong to the main thread."""

    def end() -> None:
        with pytest.raises(SystemExit) as raised:
            end_by_signal(signal.SIGTERM)
        codes.append(raised.value.code)

    def start() -> None:
        let_signals_kill()
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert codes == [143]

    codes: Any = []
    assert fork(start) == 0


class Signalling:
    """An object in whose finalizer a signal arrives."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)
        time.sleep(0)  # Here its exception is raised.


@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_in_a_finalizer(number: int, error: Any, capfd: Any) -> None:
    """The exception is ignored there; it comes a moment later."""

    def wait() -> None:
        install_sigterm_handler()
        with terminable():
            with pytest.raises(KeyboardInterrupt) as raised:
                Signalling(number)
                time.sleep(20)
            assert raised.type is error

    assert fork(wait) == 0
    assert capfd.readouterr().err == ""


def test_other_errors_of_finalizers(capsys: Any) -> None:
    class Bad:
        def __del__(self) -> None:
            raise ValueError("a mistake")

    found: List[Any] = []
    hook = sys.unraisablehook
    with patch("sys.unraisablehook", lambda ignored: found.append(ignored.exc_type)):
        with lost_signals_sent_again():
            Bad()
        Bad()
    assert found == [ValueError, ValueError]
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("error", [KeyboardInterrupt, Terminated])
def test_an_error_that_a_signal_makes(error: Any) -> None:
    with pytest.raises(error), signals_first():
        try:
            try:
                raise error
            finally:
                raise RuntimeError("the file is cut off")
        except RuntimeError as of_file:
            raise OSError("the disk is full") from of_file


@pytest.mark.parametrize("stays, expected", [(False, OSError), (True, KeyboardInterrupt)])
def test_an_error_after_a_signal(stays: bool, expected: Any) -> None:
    with pytest.raises(expected), signals_first(lambda: stays):
        try:
            raise KeyboardInterrupt
        except:  # noqa: E722 - as in Python's own copyreg
            pass
        raise OSError("the other process has ended")


@pytest.mark.parametrize("n_call", [1, 2, 3])
def test_a_signal_as_signals_are_blocked(n_call: int) -> None:
    """`pthread_sigmask` raises the exception of a signal that came before, when it has worked."""
    calls: List[Any] = []

    def change_and_raise(*args: Any) -> Any:
        calls.append(args)
        before = change(*args)
        if len(calls) == n_call:
            raise KeyboardInterrupt
        return before

    change = signal.pthread_sigmask
    with patch("signal.pthread_sigmask", change_and_raise), pytest.raises(KeyboardInterrupt):
        with signals_blocked():
            pass
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def signal_at_line(number: int, n_lines: int) -> Any:
    """A function for `sys.settrace` that sends a signal at the n-th line of our module."""
    count = itertools.count()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != signals.__file__:
            return None
        if event == "line" and next(count) == n_lines:
            signal.raise_signal(number)
        return trace

    return trace


@pytest.mark.parametrize("block", [signals_blocked, signals_kept])
@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SigTermReceived)]
)
def test_a_signal_at_any_line(block: Any, number: int, error: Any) -> None:
    """Its exception comes once; afterwards signals are handled as before."""

    def use(n_lines: int) -> bool:
        trace = sys.gettrace()
        sys.settrace(signal_at_line(number, n_lines))
        try:
            with block():
                pass
        except error:
            return True
        finally:
            sys.settrace(trace)
        return False

    def use_at_all_lines() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        install_sigterm_handler()
        n_lines = 0
        while use(n_lines):
            n_lines += 1
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(SigTermReceived):
                signal.raise_signal(signal.SIGTERM)
        assert n_lines > 20

    assert fork(use_at_all_lines) == 0


def wait_until_received(thread: threading.Thread) -> None:
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    while int(re.findall(r"SigPnd:\s*(\w+)", status.read_text(encoding="utf-8"))[0], 16):
        time.sleep(0.01)
    time.sleep(0.1)  # for Python's own handler


def test_another_thread_receives_a_signal() -> None:
    """Threads don't share what blocks a signal, and the main thread raises its exception."""

    def block() -> None:
        places = []
        with another_thread() as thread, pytest.raises(KeyboardInterrupt), signals_blocked():
            signal.pthread_kill(thread.ident, signal.SIGINT)  # type: ignore[arg-type]
            wait_until_received(thread)
            places.append("the end of the block")
        assert places

    assert fork(block) == 0


@pytest.mark.parametrize("by_another_thread", [False, True])
@pytest.mark.parametrize("order", itertools.permutations([signal.SIGINT, signal.SIGTERM]))
def test_two_signals_while_signals_are_blocked(order: Any, by_another_thread: bool) -> None:
    """Each of them is handled, although the handler of the first raises an exception."""
    handled = []

    def handle(number: int, frame: Any) -> None:
        handled.append(number)
        raise Terminated

    def block() -> None:
        for number in order:
            signal.signal(number, handle)
        with another_thread() as thread:
            receiver = thread if by_another_thread else threading.main_thread()
            with pytest.raises(Terminated), signals_blocked():
                for number in order:
                    signal.pthread_kill(receiver.ident, number)
                if by_another_thread:
                    wait_until_received(thread)
        assert sorted(handled) == sorted(order)
        assert all(signal.getsignal(number) is handle for number in order)

    assert fork(block) == 0


def test_a_signal_in_contextlib() -> None:
    """The block is not left; Python closes its generator, in which no exception may come again."""

    def handle(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        block: Any = signals_kept()
        block.__enter__()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        block.gen.close()
        assert signal.getsignal(signal.SIGINT) is handle
    finally:
        signal.signal(signal.SIGINT, before)
