"""Progress bars of our commands: on a terminal one line, in a log file lines."""

import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Callable, Iterator
from unittest.mock import patch

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BEFORE_STEPS = 1.0

_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)
_shows_steps: ContextVar[bool] = ContextVar("shows_steps", default=False)


def counted(number: int, name: str) -> str:
    """Return a number of things, such as "1 sentence" or "2,000 words"."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


class _LogFile:
    """Standard error that is no terminal: each state of a bar is a line of its own."""

    def write(self, text: str) -> None:
        line = re.sub(r"[\r\n]|\x1b\[A", "", text).strip()
        if line and "  0%|" not in line:
            sys.stderr.write(line + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


def _is_log_file() -> bool:
    allennlp_logging: Any = sys.modules.get("allennlp.common.logging")
    if getattr(allennlp_logging, "FILE_FRIENDLY_LOGGING", False):
        return True
    # Notebooks rewrite lines, as terminals do.
    return not sys.stderr.isatty() and "ipykernel.kernelapp" not in sys.modules


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """
    Show a progress bar, a `tqdm` with these settings. It stays when the work is done and disappears
    when it fails, so that only the error is left.
    """
    if _is_quiet.get() or sys.stderr is None:  # the latter as with 2>&-
        settings["disable"] = True
    elif _is_log_file():
        settings = {"file": _LogFile(), "mininterval": _SECONDS_BETWEEN_LINES, **settings}
    with tqdm(**settings, leave=False, dynamic_ncols=True) as bar:
        yield bar
        bar.leave = True


@contextmanager
def step_bar(description: str, total: int, unit: str = "B") -> Iterator[Callable[[int], Any]]:
    """
    Show the progress of a step of a command, such as reading a large file, if it takes longer than
    a second. Yield the function that is told how many more bytes (or other units) are done. Outside
    of commands nothing is shown.
    """
    if not _shows_steps.get():
        yield lambda n_done: None
        return
    settings = {"unit": unit, "unit_scale": True, "delay": _SECONDS_BEFORE_STEPS}
    with progress_bar(desc=description, total=total, **settings) as bar:
        yield bar.update


@contextmanager
def bars_on_terminals_only(bars: Any) -> Iterator[None]:
    """
    Hide AllenNLP's bars, its class `Tqdm`, in this block in a log file, or if the command is to be
    quiet.
    """
    is_hidden = _is_quiet.get() or sys.stderr is None or _is_log_file()
    bar = partial(tqdm, disable=True) if is_hidden else bars.tqdm
    with patch.object(bars, "tqdm", staticmethod(bar)):
        yield


def say(text: str) -> None:
    """Print a line about the progress of a command to standard error."""
    if not _is_quiet.get() and sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_of_command(quiet: bool = False) -> Iterator[None]:
    """Show the steps of a command or, if it is to be quiet, no progress at all."""
    tokens = _is_quiet.set(quiet), _shows_steps.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(tokens[0])
        _shows_steps.reset(tokens[1])
