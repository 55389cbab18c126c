"""End a command that can't finish: with one line for a mistake, or by a signal."""

import atexit
import errno
import inspect
import io
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Terminated(KeyboardInterrupt):
    """SIGTERM. Unlike AllenNLP's `SigTermReceived`, no `except Exception` swallows it."""


def run_or_end(
    work: Callable[[], T],
    mistake: Callable[[Exception], str | None],
    how_to_continue: Callable[[], str],
    status: int,
) -> T:
    """
    Return what `work` returns. If SIGINT or SIGTERM stops it, end this program with a line that
    `how_to_continue` completes. If it raises an error for which `mistake` returns a message, end
    with the message and an exit status.
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
        if _is_closed_pipe(error):  # `| head` has read enough.
            number, line = getattr(signal, "SIGPIPE", 0), ""
            if os.name == "nt" and sys.stdout is sys.__stdout__:  # which Python flushes at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        else:
            message = mistake(error)
            if message is None:
                raise
            line = f"error: {message}"
    # The error no longer exists here, nor do the progress bars that it kept open.
    end_with(line, status, number)


def run_script(main: Callable[..., None], usage: str = "") -> None:
    """
    Run the function of a script, with the paths of its command line if the text `usage` has the
    line that shows them. A user's mistake is one line.
    """
    paths = list(map(Path, sys.argv[1:])) if usage else []

    def work() -> None:
        try:
            inspect.signature(main).bind(*paths)
            if usage and sys.argv[1].startswith("-"):
                raise TypeError
        except TypeError:
            line = next(line for line in usage.splitlines() if "python scripts/" in line)
            raise ValueError(f"usage: {line.strip()}") from None
        main(*paths)

    mistakes = OSError, ValueError, ImportError
    run_or_end(work, lambda e: describe(e) if isinstance(e, mistakes) else None, str, 2)


def _is_closed_pipe(error: Exception) -> bool:
    # On Windows, it may also be an invalid argument, of no file.
    named = getattr(error, "errno", None), getattr(error, "filename", None)
    return isinstance(error, BrokenPipeError) or (os.name == "nt" and named == (errno.EINVAL, None))


def escape_output() -> None:
    """Print characters that the console's encoding lacks, such as cp1252, as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def joined(arguments: Iterable[str]) -> str:
    """Return arguments as they are typed in a shell; those of Windows know no single quotes."""
    if os.name != "nt":
        return shlex.join(arguments)
    return " ".join(a if re.fullmatch(r"[\w.:/\\=+-]+", a) else f'"{a}"' for a in arguments)


@contextmanager
def noted_signals(noted: list[int], is_worker: bool = False) -> Iterator[None]:
    """
    In the `with` block, the first SIGINT and the first SIGTERM only add their numbers to `noted`.
    The second one ends this process at once, unless it is a worker: a worker receives each signal
    twice, from the terminal and from the process that started it.
    """

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        if not is_worker:
            signal.signal(number, signal.SIG_DFL)
        # `print` can't be called again while it is interrupted.
        os.write(2, b"\nSaving and ending after this batch. The same signal again ends at once.\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    with _handled({n: note for n in numbers if signal.getsignal(n) != signal.SIG_IGN}):
        yield


@contextmanager
def _handled(handlers: dict[int, Any]) -> Iterator[None]:
    """Handle signals in the `with` block, if this is the main thread; Python allows no other."""
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
        name = error.filename
        if isinstance(name, bytes):
            name = name.decode("utf-8", "surrogateescape")
        text = f"{name}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory {error}"
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def printable(text: str) -> str:
    """Return text with escapes in place of characters that control a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def end_with(message: str, status: int = 1, number: int = 0) -> NoReturn:
    """End this program with a line, and by a signal if its number is given."""
    with suppress(OSError):  # Ctrl-C also ended `tee`, which read the line.
        print(message, end="\n" if message else "", file=sys.stderr)
    if number:
        end_by_signal(number)
    sys.exit(status)


def end_by_signal(number: int) -> NoReturn:
    """Run the exit functions and end this process by a signal, so that a shell's loop ends too."""
    signal.signal(number, signal.SIG_DFL)
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # Standard output has no reader, or is closed.
        print(end="", flush=True)
    signal.raise_signal(number)
    sys.exit(128 + number)  # The signal is blocked.
