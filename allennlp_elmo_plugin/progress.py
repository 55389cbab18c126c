"""
The one way in which long work shows how far it is: bars on standard error, those of our commands
and those of AllenNLP. In a terminal a bar is a line that is rewritten. In a log file it is a line
now and then, more rarely the longer the work takes.
"""

import inspect
import logging
import os
import re
import sys
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Iterator, Optional

from tqdm import tqdm

# Lines of a bar in a log file: at most one in so many seconds, and one in this share of the time so
# far. A work of ten hours has about a hundred lines.
_LOG_SECONDS = 10.0
_LOG_SHARE = 0.05

_SECONDS_BEFORE_STEPS = 1.0

_tqdm_logger = logging.getLogger("tqdm")  # AllenNLP writes it to the out.log of a run.

_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)
_shows_steps: ContextVar[bool] = ContextVar("shows_steps", default=False)


def counted(number: int, name: str) -> str:
    """Return a number of things, such as "1 sentence" or "2,000 words"."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


class Title:
    """What the bars of AllenNLP show beside the metrics."""

    def __init__(self, text: str, total: Optional[int], leave: bool, initial: int = 0) -> None:
        self.text = text
        self.total = total
        self.leave = leave
        self.initial = initial
        self.note = ""
        """Shown before the metrics; it may change while a bar runs."""


_title: ContextVar[Optional[Title]] = ContextVar("title", default=None)


def _is_in_log_file() -> bool:
    allennlp_logging: Any = sys.modules.get("allennlp.common.logging")
    if getattr(allennlp_logging, "FILE_FRIENDLY_LOGGING", False):
        return True
    is_terminal = getattr(sys.stderr, "isatty", bool)()
    # Notebooks rewrite lines, too.
    return not is_terminal and "ipykernel.kernelapp" not in sys.modules


def _width_of_terminal() -> Optional[int]:
    try:
        n_columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return None
    return n_columns - 1 if n_columns > 1 else None  # Some lines wrap when the last column is full.


class _Output:
    """Standard error as it is when something is written, and every ten seconds AllenNLP's log."""

    def __init__(self) -> None:
        self._last_logged = 0.0

    def write(self, text: str) -> None:
        line = re.sub(r"[\r\n]|\x1b\[A", "", text).strip()
        if not _is_in_log_file():
            sys.stderr.write(text)
        elif line:
            sys.stderr.write(line + "\n")
        now = time.monotonic()
        if line and (now - self._last_logged >= _LOG_SECONDS or "100%" in line):
            _tqdm_logger.info(line)
            self._last_logged = now

    def flush(self) -> None:
        sys.stderr.flush()


class _Bar(tqdm):
    """
    A bar whose lock belongs to one process. tqdm's own is shared with all forked processes, and if
    one of them is killed while it draws, the others wait forever.
    """

    monitor_interval = 0  # no thread of tqdm

    def __init__(self, *args: Any, title: Optional[Title] = None, **settings: Any) -> None:
        self._title = title
        self._in_log_file = sys.stderr is not None and _is_in_log_file()
        self._next_line = time.monotonic() + _LOG_SECONDS
        settings = {
            "file": _Output(),
            "mininterval": 2.0 if self._in_log_file else 0.1,
            **settings,
        }
        if _is_quiet.get() or sys.stderr is None:  # the latter as with 2>&-
            settings["disable"] = True
        super().__init__(*args, **settings)

    @classmethod
    def renew_lock(cls) -> None:
        cls.set_lock(threading.RLock())

    def display(self, msg: Any = None, pos: Any = None) -> Any:
        if self._in_log_file:
            now = time.monotonic()
            if now < self._next_line:
                return True
            elapsed = self.format_dict["elapsed"]
            self._next_line = now + max(_LOG_SECONDS, _LOG_SHARE * elapsed)
        else:
            self.ncols = _width_of_terminal()
        return super().display(msg, pos)

    def close(self) -> None:
        self._next_line = 0.0
        super().close()

    def set_description(self, desc: Any = None, refresh: Any = True) -> None:
        """Set the text before the bar or, for a bar of AllenNLP, the metrics after it."""
        if self._title is None:
            super().set_description(desc, refresh)
            return
        # A narrow terminal cuts off the end of the line, which has what matters least.
        metrics = (desc or "").rstrip(" |")
        self.set_postfix_str(", ".join(filter(None, [self._title.note, metrics])), refresh)


_Bar.renew_lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_Bar.renew_lock)


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """
    Show a progress bar, a `tqdm` with these settings. It stays when the work is done and disappears
    when it fails, so that only the error is left.
    """
    with _Bar(**settings, leave=False) as bar:
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
    with _Bar(
        desc=description,
        total=total,
        unit=unit,
        unit_scale=True,
        delay=_SECONDS_BEFORE_STEPS,
        leave=False,
    ) as bar:
        yield bar.update
        bar.leave = True


def bar_of_allennlp(*args: Any, **settings: Any) -> Any:
    """Make a bar in place of `allennlp.common.tqdm.Tqdm.tqdm`."""
    title = _title.get() or Title("", None, True)
    _, *names = inspect.signature(tqdm.__init__).parameters
    settings.update(zip(names, args))
    description = ", ".join(filter(None, [title.text, settings.pop("desc", None)]))
    total = settings.pop("total", None) or title.total  # of what is left
    settings = {
        "leave": title.leave,
        **settings,
        "desc": description,
        "initial": title.initial,
        "total": None if total is None else title.initial + total,
    }
    return _Bar(title=title, **settings)


@contextmanager
def titled_bars(
    text: str, data: Any = None, leave: bool = True, initial: int = 0
) -> Iterator[Title]:
    """
    Give AllenNLP's bars in this block a title and, if they have none, the length of `data` (if it
    has one) as their total. With `leave` they stay when they are done. They start from `initial`,
    which was done before.
    """
    try:
        total: Optional[int] = len(data)
    except TypeError:  # A data loader would have to read all data.
        total = None
    title = Title(text, total, leave, initial)
    token = _title.set(title)
    try:
        yield title
    finally:
        _title.reset(token)


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
