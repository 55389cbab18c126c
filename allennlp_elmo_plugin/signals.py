"""Ending a program by the signal that has stopped it, as shells expect."""

import atexit
import signal
import sys
from contextlib import suppress
from typing import NoReturn


def let_signals_kill() -> None:
    """Let SIGINT and SIGTERM end this process at once, after a first one has ended its work."""
    with suppress(ValueError):  # Only the main thread may set handlers.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_by_signal(number: int) -> NoReturn:
    """
    End this process by a signal, after all that is done at exit. A shell reports the status 128 +
    `number` of this and of an exit with that status, but ends its own loop or script only if the
    signal ended the program.
    """
    let_signals_kill()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # There is none, or it is closed.
            stream.flush()
    with suppress(ValueError):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    sys.exit(128 + number)  # The signal is blocked, or this is not the main thread.
