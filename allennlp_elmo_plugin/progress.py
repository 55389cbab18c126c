"""The progress bars of our commands: one line on a terminal, several lines in a log file."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

_is_quiet = _is_file_friendly = False


def counted(number: int, name: str) -> str:
    """Return a number and what it counts, such as "1 sentence" or "2,000 words"."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


class _LogFile:
    """Standard error when it isn't a terminal: each state of a bar is a new line."""

    def write(self, text: str) -> None:
        line = re.sub(r"[\r\n]|\x1b\[A", "", text).strip()
        if line and "  0%|" not in line:
            sys.stderr.write(line + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """Show a `tqdm` with these settings. It disappears if the work fails."""
    allennlp_logging = sys.modules.get("allennlp.common.logging")
    if _is_quiet or sys.stderr is None:  # closed, as with 2>&-
        settings["disable"] = True
    # Notebooks rewrite lines, as terminals do.
    elif (
        _is_file_friendly
        or getattr(allennlp_logging, "FILE_FRIENDLY_LOGGING", False)
        or not (sys.stderr.isatty() or "ipykernel.kernelapp" in sys.modules)
    ):
        settings = {"file": _LogFile(), "mininterval": 10.0, **settings}
    with tqdm(**settings, leave=False, dynamic_ncols=True) as bar:
        yield bar
        bar.leave = True


def skip_to(bar: Any, n: int) -> None:
    """Count what an earlier run has done, which has no part in the speed and the time left."""
    bar.n = bar.initial = bar.last_print_n = n
    bar.start_t = bar.last_print_t = time.time()


@contextmanager
def step_bar(
    description: str, total: int | None, unit: str = "B"
) -> Iterator[Callable[[int], Any]]:
    """
    Show the progress of a step from two seconds on. Yield a function to call with the number of
    bytes (or other units) that were done since the last call.
    """
    with progress_bar(desc=description, total=total, unit=unit, unit_scale=True, delay=2.0) as bar:
        yield bar.update


@contextmanager
def progress_of_command(quiet: bool = False, file_friendly: bool = False) -> Iterator[None]:
    """In the `with` block, show no progress (`quiet`), or lines as in a log file."""
    global _is_quiet, _is_file_friendly
    before = _is_quiet, _is_file_friendly
    _is_quiet, _is_file_friendly = quiet, file_friendly
    try:
        yield
    finally:
        _is_quiet, _is_file_friendly = before
