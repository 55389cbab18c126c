"""How a command ends that can't finish: by one line for a mistake, or by a signal."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Terminated(KeyboardInterrupt):
    """SIGTERM. AllenNLP's `SigTermReceived` is lost in an `except Exception`; this is not."""


def run_or_end(
    work: Callable[[], T],
    mistake: Callable[[Exception], str | None],
    how_to_continue: Callable[[], str],
    status: int,
) -> T:
    """
    Return what `work` returns. End this program by one line if SIGINT or SIGTERM stops it, with
    what `how_to_continue` adds, or if it raises an error for which `mistake` returns a message.
    """

    def terminate(number: int, frame: Any) -> NoReturn:
        raise Terminated

    number = 0
    try:
        with _handled({signal.SIGTERM: terminate}):
            return work()
    except KeyboardInterrupt as error:
        ended = isinstance(error, Terminated)
        number, word = (signal.SIGTERM, "terminated") if ended else (signal.SIGINT, "interrupted")
        line = word + how_to_continue()
    except Exception as error:
        message = mistake(error)
        if message is None:
            raise
        line = f"error: {message}"
    # Here the error is gone, and with it the progress bars that it kept open.
    end_with(line, status, number)


@contextmanager
def noted_signals(noted: list[int], is_worker: bool = False) -> Iterator[None]:
    """
    In the `with` block, let the first SIGINT and the first SIGTERM only add their numbers to a
    list. The next one ends this process at once, unless it is a worker, which gets a signal from
    the terminal and another one from the process that has started it.
    """

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        if not is_worker:
            signal.signal(number, signal.SIG_DFL)
        # `print` can't be called again while it is interrupted.
        os.write(2, b"\nSaving and ending after this batch. The same signal again ends at once.\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    with _handled({each: note for each in numbers if signal.getsignal(each) != signal.SIG_IGN}):
        yield


@contextmanager
def _handled(handlers: dict[int, Any]) -> Iterator[None]:
    """Handle signals in the `with` block, if this is the main thread: no other may."""
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(error: BaseException) -> str:
    """Return an error's message as one line that a terminal can show."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory {error}"
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def printable(text: str) -> str:
    """Return text with escapes in place of what would control a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def end_with(message: str, status: int = 1, number: int = 0) -> NoReturn:
    """End this program with a line, by an exit status or, if it is given, a signal's number."""
    with suppress(OSError):  # Ctrl-C ended `tee`, too, which read it.
        print(message, end="\n" if message else "", file=sys.stderr)
    if number:
        end_by_signal(number)
    sys.exit(status)


def end_by_signal(number: int) -> NoReturn:
    """End this process by a signal, so that a shell's loop ends too, after the exit functions."""
    signal.signal(number, signal.SIG_DFL)
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # Nobody reads it, or it is closed.
        print(end="", flush=True)
    signal.raise_signal(number)
    sys.exit(128 + number)  # The signal is blocked.
