"""Count the words of files, in this process or in several."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import (
    Any,
    Deque,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Union,
)

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.text import undecodable
from allennlp_elmo_plugin.files.text_lines import join_lines, open_lines

_BLOCK_BYTES = 2**20
_RANGE_BYTES = 16 * 2**20
"""One process counts less than two of these faster than several."""

# Of the process that counts: shared, and without a lock, which a killed process might hold.
_stop: Any


class Counts(NamedTuple):
    """The words of a part of a corpus, for `Counter.update`, and how much was read for them."""

    words: Union[List[bytes], Dict[bytes, int]]
    n_lines: int = 0
    n_bytes: int = 0


class _Range(NamedTuple):
    """
    A part of a file: the lines that start after byte `start`, or at the start of the file, and not
    after byte `end`. A compressed file has one range.
    """

    file: Path
    start: int
    end: Optional[int]


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
        n_processes = min(_n_cores(), n_bytes // _RANGE_BYTES, len(ranges))
    if n_processes < 2 or not sys.platform.startswith("linux"):
        for file in files:
            yield from _count(_Range(file, 0, None), encoding_errors)
        return
    context = multiprocessing.get_context("fork")
    stop = context.RawValue("b", 0)
    pool = ProcessPoolExecutor(n_processes, context, initializer=_start, initargs=(stop,))
    pending: Deque[Future] = deque()
    try:
        for part in ranges:
            if len(pending) == 2 * n_processes:
                yield pending.popleft().result()
            pending.append(pool.submit(_count_range, part, encoding_errors))
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that counted words was killed, perhaps for lack of memory; run the command "
            "again"
        ) from error
    finally:
        stop.value = 1
        pool.shutdown(cancel_futures=True)


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _ranges(files: Iterable[Path]) -> Iterator[_Range]:
    for file in files:
        starts = [0]
        with suppress(OSError, ConfigurationError):  # The reader of the range raises it again.
            with open_lines(file, ConfigurationError) as text:
                if not text.is_gzip:
                    starts = list(range(0, text.size or 1, _RANGE_BYTES))
        for start, end in zip(starts, [*starts[1:], None]):
            yield _Range(file, start, end)


def _count(part: _Range, encoding_errors: str, number: int = 0) -> Iterator[Counts]:
    """Count the words of a range; `number` line feeds are before it."""
    with open_lines(part.file, ConfigurationError) as text:
        if part.start:
            text.seek(part.start, number)
            text.read_block(0)  # The rest of the line belongs to the range before.
        n_lines, n_bytes = text.number, text.position
        while part.end is None or text.offset <= part.end:
            size = _BLOCK_BYTES
            if part.end is not None:
                size = min(size, part.end - text.offset)
            lines = text.read_block(size)
            if not lines:
                break
            block = join_lines(lines)
            try:
                if not block.isascii():
                    block.decode("utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                n_before = text.number - len(lines) + block.count(b"\n", 0, error.start)
                raise undecodable(part.file, n_before + 1, error) from None
            yield Counts(block.split(), text.number - n_lines, text.position - n_bytes)
            n_lines, n_bytes = text.number, text.position


def _start(stop: Any) -> None:
    """Prepare a process for counting, until the value of `stop` isn't 0."""
    global _stop
    _stop = stop
    # The parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Let this process end when its parent does, even if that is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _count_range(part: _Range, encoding_errors: str) -> Counts:
    words: Counter = Counter()
    n_lines = n_bytes = 0
    try:
        for counts in _count(part, encoding_errors):
            if _stop.value:
                break
            words.update(counts.words)
            n_lines += counts.n_lines
            n_bytes += counts.n_bytes
    except ConfigurationError:
        if part.start == 0:
            raise
        # Once more, with the right number of the line.
        number = 0
        with open(part.file, "rb") as file:
            while block := file.read(min(_BLOCK_BYTES, part.start - file.tell())):
                number += block.count(b"\n")
        for _ in _count(part, encoding_errors, number):
            pass
        raise
    return Counts(dict(words), n_lines, n_bytes)
