"""Count the words of files, in this process or in several."""

import codecs
import multiprocessing
import os
import signal
import sys
from collections import Counter
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.text import undecodable
from allennlp_elmo_plugin.files.text_lines import open_lines, without_mark

_BLOCK_BYTES = 2**20
_RANGE_BYTES = 16 * 2**20
"""One process counts less than two of these faster than several."""

_MAX_WORDS = 2**19
"""A process with more distinct words than these sends their counts, and forgets them."""

_DONE = "done"


class Counts(NamedTuple):
    """Some of the words of a corpus, for `Counter.update`, and how much was read for them."""

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
) -> Iterator[Counts]:
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
    with closing(_Processes(n_processes, encoding_errors)) as processes:
        yield from processes.count(ranges)


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
            block = b"".join(lines)
            if codecs.BOM_UTF8 in block:
                block = b"".join(map(without_mark, lines))
            try:
                if not block.isascii():
                    block.decode("utf-8", encoding_errors)
            except UnicodeDecodeError as error:
                n_before = text.number - len(lines) + block.count(b"\n", 0, error.start)
                raise undecodable(part.file, n_before + 1, error) from None
            yield Counts(block.split(), text.number - n_lines, text.position - n_bytes)
            n_lines, n_bytes = text.number, text.position


class _Processes:
    """Processes that count words, each of one range at a time."""

    def __init__(self, number: int, encoding_errors: str) -> None:
        self._encoding_errors = encoding_errors
        self._processes: Dict[Connection, Any] = {}
        context = multiprocessing.get_context("fork")
        for _ in range(number):
            ours, theirs = context.Pipe()
            # A copy of our end in a process would hide our death from it and from the others.
            copies = [*self._processes, ours]
            process = context.Process(
                target=_serve, args=(theirs, copies, encoding_errors), daemon=True
            )
            process.start()
            theirs.close()
            self._processes[ours] = process

    def close(self) -> None:
        for connection, process in self._processes.items():
            process.kill()
            process.join()
            connection.close()

    def count(self, ranges: List[_Range]) -> Iterator[Counts]:
        """Yield the counts of ranges."""
        idle = list(self._processes)
        running: Dict[Connection, int] = {}
        errors: Dict[int, BaseException] = {}
        next_range = 0
        while True:
            while idle and next_range < len(ranges) and not errors:
                connection = idle.pop()
                self._send(connection, ranges[next_range])
                running[connection] = next_range
                next_range += 1
            # An earlier range may have an error, too.
            if not any(not errors or each < min(errors) for each in running.values()):
                break
            for connection, message in self._receive(running):
                if isinstance(message, Counts):
                    yield message
                    continue
                if isinstance(message, BaseException):
                    errors[running[connection]] = message
                del running[connection]
                idle.append(connection)
        if errors:
            self._raise(ranges[min(errors)], errors[min(errors)])
        for connection in self._processes:
            self._send(connection, None)
            running[connection] = 0
        while running:
            for connection, message in self._receive(running):
                yield message
                del running[connection]

    def _send(self, connection: Connection, message: Optional[_Range]) -> None:
        try:
            connection.send(message)
        except OSError:
            raise self._death(connection) from None

    def _receive(self, running: Iterable[Connection]) -> Iterator[Tuple[Connection, Any]]:
        """Wait for messages."""
        waiting: Dict[Any, Connection] = {self._processes[each].sentinel: each for each in running}
        ready = wait([*running, *waiting])
        for connection in list(running):
            if connection not in ready and self._processes[connection].sentinel not in ready:
                continue
            try:
                # Another process may hold a copy of the dead one's end.
                if not connection.poll():
                    raise EOFError
                message = connection.recv()
            except (EOFError, OSError):
                raise self._death(connection) from None
            yield connection, message

    def _death(self, connection: Connection) -> ChildProcessError:
        process = self._processes[connection]
        process.join()
        return ChildProcessError(
            f"a process that counted words was killed (exit status {process.exitcode}), perhaps "
            "for lack of memory; run the command again"
        )

    def _raise(self, part: _Range, error: BaseException) -> None:
        """Raise the error of a range, with the right number of its line."""
        number = 0
        if part.start:
            with open(part.file, "rb") as file:
                while block := file.read(min(_BLOCK_BYTES, part.start - file.tell())):
                    number += block.count(b"\n")
        for _ in _count(part, self._encoding_errors, number):
            pass
        raise error


def _serve(connection: Connection, copies: List[Connection], encoding_errors: str) -> None:
    """Count ranges until there are no more; send the counts when they are many, and at the end."""
    for each in copies:
        each.close()
    # The parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    words: Counter = Counter()
    with suppress(EOFError, OSError):  # The parent is gone.
        while (part := connection.recv()) is not None:
            for message in _messages(part, encoding_errors, words):
                connection.send(message)
        connection.send(Counts(words))


def _messages(part: _Range, encoding_errors: str, words: Counter) -> Iterator[Any]:
    try:
        for counts in _count(part, encoding_errors):
            words.update(counts.words)
            yield counts._replace(words=dict(words) if len(words) > _MAX_WORDS else {})
            if len(words) > _MAX_WORDS:
                words.clear()
    except Exception as error:
        yield error
    else:
        yield _DONE
