"""Count the words of files, in this process or in several."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generator, Iterable, Iterator, NamedTuple, Optional

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.text import raise_undecodable
from allennlp_elmo_plugin.files.text_lines import join_lines, open_lines

_BLOCK_BYTES = 2**20
_RANGE_BYTES = 16 * 2**20
"""One process counts less than two of these faster than several."""


class Counts(NamedTuple):
    """The words of a part of a corpus, for `Counter.update`, and how much was read for them."""

    words: Any
    n_lines: int
    n_bytes: int


class _Range(NamedTuple):
    """
    A part of a file: the lines that start after byte `start`, or at the start of the file, and not
    after byte `end`. A compressed file has one range.
    """

    file: Path
    start: int = 0
    end: float = float("inf")


def count_in_files(
    files: Iterable[Path], encoding_errors: str = "strict", n_processes: Optional[int] = None
) -> Generator[Counts, None, None]:
    """
    Count the words of files, and yield parts of the counts.

    # Parameters

    files : `Iterable[Path]`
        Plain files are divided among the processes. A compressed file is read by one.
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8, "strict" or "replace".
    n_processes : `int`, optional
        Default: one for each core, if there is enough text for them. Processes are forked, so there
        is one only where that isn't safe.

    # Raises

    `ConfigurationError`
        A file can't be read, or, in the order of the files, the first line that isn't text.
    `ChildProcessError`
        A process was killed.
    """
    files = list(files)
    ranges = list(_ranges(files))
    if n_processes is None:
        n_bytes = sum(file.stat().st_size for file in files)
        n_processes = min(os.cpu_count() or 1, n_bytes // _RANGE_BYTES, len(ranges))
    if n_processes < 2 or not sys.platform.startswith("linux"):
        for file in files:
            yield from _count(_Range(file), encoding_errors)
        return
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(n_processes, context, initializer=_start)
    try:
        yield from pool.map(partial(_count_range, encoding_errors=encoding_errors), ranges)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that counted words was killed, perhaps for lack of memory; run the command "
            "again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _ranges(files: Iterable[Path]) -> Iterator[_Range]:
    for file in files:
        n_bytes = 0
        with suppress(OSError, ConfigurationError):  # The reader of the range raises it again.
            with open_lines(file, ConfigurationError) as text:
                n_bytes = 0 if text.is_gzip else text.size or 0
        for start in range(0, max(1, n_bytes), _RANGE_BYTES):
            end = start + _RANGE_BYTES
            yield _Range(file, start, end if end < n_bytes else float("inf"))


def _count(part: _Range, encoding_errors: str) -> Iterator[Counts]:
    with open_lines(part.file, ConfigurationError) as text:
        if part.start:
            text.seek(part.start, 0)
            text.read_block(0)  # The rest of the line belongs to the range before.
        n_lines, n_bytes = text.number, text.position
        while text.offset <= part.end:
            lines = text.read_block(int(min(_BLOCK_BYTES, part.end - text.offset)))
            if not lines:
                break
            block = join_lines(lines)
            if encoding_errors == "strict" and not block.isascii():
                try:
                    block.decode()
                except UnicodeDecodeError:
                    raise_undecodable(part.file)
            yield Counts(block.split(), text.number - n_lines, text.position - n_bytes)
            n_lines, n_bytes = text.number, text.position


def _count_range(part: _Range, encoding_errors: str) -> Counts:
    words: Counter = Counter()
    n_lines = n_bytes = 0
    try:
        for counts in _count(part, encoding_errors):
            words.update(counts.words)
            n_lines += counts.n_lines
            n_bytes += counts.n_bytes
    except ConfigurationError:
        if part.start:  # Its line has another number, and one before may be worse.
            raise_undecodable(part.file)
        raise
    return Counts(dict(words), n_lines, n_bytes)


def _start() -> None:
    """Prepare a process for counting. It ends with its parent, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
