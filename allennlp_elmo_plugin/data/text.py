"""
Corpora: one tokenised sentence a line, in one file or many, plain or gzip.
"""

import codecs
import glob
import gzip
import io
import os
import random
import zlib
from pathlib import Path
from typing import IO, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from allennlp.common.checks import ConfigurationError

PathOrPaths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]

BLOCK_BYTES = 64 * 2**20
"""Lines are shuffled within blocks of this size: a usual shard, and it fits into any memory."""

UNSHUFFLED_BLOCK_BYTES = 2**20

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is refused: a small compressed file can hold one that fills the memory."""

_GZIP = b"\x1f\x8b"

PUT_BACK = (
    "A recovered run goes on where it was in the text: put the files back as they were, or start "
    "a new run in another folder"
)


def find_files(paths: PathOrPaths) -> List[Path]:
    """
    The files of a corpus.

    # Parameters

    paths : `str`, `os.PathLike`, or several of them
        Each a file, a folder (all files in it but hidden ones) or a glob.

    # Returns

    `List[Path]`
        In the order of `paths`, the files of a folder or a glob sorted by name. Each file once.

    # Raises

    `ConfigurationError`
        A path is missing, a folder has no files, a glob no match, or there is no text in any file.
    """
    files: List[Path] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        name = os.fspath(path)
        if os.path.isfile(name):
            found = [Path(name)]
        elif os.path.isdir(name):
            found = [f for f in sorted(Path(name).iterdir()) if f.is_file() and f.name[0] != "."]
            if not found:
                raise ConfigurationError(
                    f"The folder {name} has no files; give a folder that holds the shards of a "
                    f"corpus, or a glob such as {os.path.join(glob.escape(name), '**', '*.txt')}"
                )
        elif glob.has_magic(name):
            found = [Path(f) for f in sorted(glob.glob(name, recursive=True)) if os.path.isfile(f)]
            if not found:
                raise ConfigurationError(
                    f"No file matches {name} (looked from {os.getcwd()}); check the pattern"
                )
        else:
            raise ConfigurationError(
                f"{name} does not exist (looked from {os.getcwd()}); give a file, a folder or a "
                "glob of text files, plain or .gz"
            )
        files += found
    files = list(dict.fromkeys(files))
    if not any(file.stat().st_size for file in files):
        named = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
        raise ConfigurationError(f"There is no text to read: {named or 'no file'} is empty")
    return files


def read_blocks(
    file: Path,
    block_bytes: int,
    on_read: Optional[Callable[[int], object]] = None,
    offset: int = 0,
    first_line: int = 1,
) -> Iterator[List[bytes]]:
    """
    Reads about `block_bytes` of whole lines at a time. Only a line feed ends a line.

    # Parameters

    file : `Path`
        Decompressed if its name ends in .gz.
    block_bytes : `int`
    on_read : `Callable[[int], object]`, optional (default = `None`)
        Called with the number of bytes that each block took in the file as it is stored, for a
        progress bar.
    offset : `int`, optional (default = `0`)
        The byte of the text to start from, the first of a line. What lies before it is not read,
        unless the file is compressed.
    first_line : `int`, optional (default = `1`)
        The number of the line at `offset`, for errors.

    # Raises

    `ConfigurationError`
        The file can't be read, or a line has more than `MAX_LINE_BYTES`.
    """
    with open(file, "rb") as raw:
        _check_name(file, raw.peek(len(_GZIP)))
        stream: IO[bytes] = raw
        if file.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        position = 0
        while True:
            try:
                if offset:
                    stream.seek(offset)
                    offset = 0
                block = stream.read(block_bytes)
                block += stream.readline(MAX_LINE_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise ConfigurationError(f"Can't read {file}: {error}") from error
            if on_read is not None:
                on_read(raw.tell() - position)
                position = raw.tell()
            lines = io.BytesIO(block).readlines()
            if not lines:
                return
            for number, line in enumerate(lines, start=first_line):
                if len(line) > MAX_LINE_BYTES:
                    raise ConfigurationError(
                        f"{file}, line {number}: is longer than {MAX_LINE_BYTES:,} bytes; is this "
                        "a text? Write one sentence a line"
                    )
            first_line += len(lines)
            yield lines


def _check_name(file: Path, start: bytes) -> None:
    is_gzip = start.startswith(_GZIP)
    if is_gzip and file.suffix != ".gz":
        raise ConfigurationError(
            f"Can't read {file}: it is compressed by gzip, but its name does not end in .gz; "
            f"rename it to {file.name}.gz"
        )
    if start and not is_gzip and file.suffix == ".gz":
        raise ConfigurationError(
            f"Can't read {file}: its name ends in .gz, but it is not compressed by gzip; rename it "
            f"to {file.stem}"
        )


def undecodable(file: Path, number: int, error: UnicodeDecodeError) -> ConfigurationError:
    """The error for a line that is not UTF-8."""
    byte = error.object[error.start]
    return ConfigurationError(
        f"{file}, line {number}: byte 0x{byte:02x} is not UTF-8 ({error.reason}); convert the "
        'file, or have such bytes read as U+FFFD (encoding_errors "replace" in a configuration, '
        "--encoding-errors replace on the command line)"
    )


def split_words(line: bytes, encoding_errors: str = "strict") -> List[str]:
    """
    The words of a line: what ASCII white space separates. Other spaces (no-break, ideographic,
    ...) are parts of words. A byte-order mark at the start of the line is not.
    """
    if line.startswith(codecs.BOM_UTF8):
        line = line[len(codecs.BOM_UTF8) :]
    words = b" ".join(line.split()).decode("utf-8", encoding_errors)
    return words.split(" ") if words else []


class SentenceStream(Iterator[List[str]]):
    """
    The sentences of a corpus, one after another: the words of each line. An empty line is a
    sentence without words.

    `state_dict` tells where the stream is, and a stream of the same arguments goes on from there
    without reading what lies before: only the block of the file that it is in is read again (and a
    compressed file is decompressed up to it).

    # Parameters

    files : `Iterable[Path]`
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8: "strict" (an error that names file and line) or
        "replace" (by U+FFFD).
    shuffle : `random.Random`, optional (default = `None`)
        If given, it draws the order of the files, and that of the lines in each block of 64 MB of
        a file. The memory needed does not depend on the size of the files.
    """

    def __init__(
        self,
        files: Iterable[Path],
        *,
        encoding_errors: str = "strict",
        shuffle: Optional[random.Random] = None,
    ) -> None:
        self._files = list(files)
        self._encoding_errors = encoding_errors
        self._seed: Optional[int] = None
        if shuffle is not None:
            shuffle.shuffle(self._files)
            # Each block has an order of its own, so that it can be had without those before.
            self._seed = shuffle.getrandbits(64)
        self._blocks = self._read_blocks()
        self._block = _Block(0, 0, 1, [])
        self._order: Sequence[int] = []
        self._n_read = 0

    def __next__(self) -> List[str]:
        while self._n_read == len(self._order):
            self._next_block()
        i = self._order[self._n_read]
        self._n_read += 1
        try:
            return split_words(self._block.lines[i], self._encoding_errors)
        except UnicodeDecodeError as error:
            file = self._files[self._block.file]
            raise undecodable(file, self._block.first_line + i, error) from None

    def _next_block(self) -> None:
        self._block = next(self._blocks)
        self._n_read = 0
        self._order = range(len(self._block.lines))
        if self._seed is not None:
            self._order = list(self._order)
            block_seed = f"{self._seed} {self._block.file} {self._block.offset}"
            random.Random(block_seed).shuffle(self._order)

    def _read_blocks(self, file: int = 0, offset: int = 0, line: int = 1) -> Iterator["_Block"]:
        block_bytes = UNSHUFFLED_BLOCK_BYTES if self._seed is None else BLOCK_BYTES
        for i in range(file, len(self._files)):
            for lines in read_blocks(self._files[i], block_bytes, offset=offset, first_line=line):
                yield _Block(i, offset, line, lines)
                offset += sum(map(len, lines))
                line += len(lines)
            offset, line = 0, 1

    def state_dict(self) -> Dict[str, int]:
        """
        Where the stream is: the file (in the order in which they are read), the block by its first
        byte and line, its checksum, and how many of its lines have been given.
        """
        return {
            "file": self._block.file,
            "offset": self._block.offset,
            "line": self._block.first_line,
            "checksum": self._block.checksum,
            "n_read": self._n_read,
        }

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """
        Goes on where another stream of the same arguments was.

        # Raises

        `ConfigurationError`
            The text there has changed.
        """
        self._blocks = self._read_blocks(state["file"], state["offset"], state["line"])
        self._block, self._order, self._n_read = _Block(0, 0, 1, []), [], 0
        if state["n_read"] == 0:
            return
        try:
            self._next_block()
        except StopIteration:
            pass  # the file ends before
        if self._block.checksum != state["checksum"]:
            raise ConfigurationError(
                f"{self._files[state['file']]} has changed since the checkpoint was saved: it had "
                f"other text from line {state['line']} on. {PUT_BACK}"
            )
        self._n_read = state["n_read"]


class _Block:
    """
    Lines of a file that are read together.
    """

    def __init__(self, file: int, offset: int, first_line: int, lines: List[bytes]) -> None:
        self.file = file
        self.offset = offset
        self.first_line = first_line
        self.lines = lines
        self.checksum = 0
        for line in lines:
            self.checksum = zlib.crc32(line, self.checksum)


def read_sentences(
    files: Iterable[Path],
    *,
    encoding_errors: str = "strict",
    shuffle: Optional[random.Random] = None,
) -> SentenceStream:
    """
    A `SentenceStream`; the parameters are its.
    """
    return SentenceStream(files, encoding_errors=encoding_errors, shuffle=shuffle)


FileDescription = Dict[str, List[int]]
"""By the name of each file of a corpus: its size, what changes with its content, its checksum."""


def describe_files(
    files: Iterable[Path], known: Optional[FileDescription] = None
) -> FileDescription:
    """
    Describe files for `check_files`.

    # Parameters

    files : `Iterable[Path]`
    known : `Dict[str, List[int]]`, optional (default = `None`)
        An earlier description. A file that has the size, times and inode of then has not been
        written to, and is not read again.
    """
    known = known or {}
    described = {}
    for file in files:
        name, status = os.fspath(file), file.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        before = known.get(name, [])
        described[name] = before if before[:-1] == state else [*state, _checksum(file)]
    return described


def _checksum(file: Path) -> int:
    """Of the bytes of a file as it is stored."""
    checksum = 0
    with open(file, "rb") as stored:
        while True:
            block = stored.read(UNSHUFFLED_BLOCK_BYTES)
            if not block:
                return checksum
            checksum = zlib.crc32(block, checksum)


def check_files(described: FileDescription, files: Iterable[Path]) -> FileDescription:
    """
    Check that a corpus consists of the files that `describe_files` saw, each with the same bytes.

    # Returns

    `Dict[str, List[int]]`
        The description of the files as they are now.

    # Raises

    `ConfigurationError`
        Names the first file that differs.
    """
    found = describe_files(files, described)
    for name in sorted({*described, *found}):
        if name not in found:
            change = "is not there any more"
        elif name not in described:
            change = "is new"
        elif described[name][0] != found[name][0]:
            change = f"had {described[name][0]} bytes and now has {found[name][0]}"
        elif described[name][-1] != found[name][-1]:
            change = "has other text of the same length"
        else:
            continue
        raise ConfigurationError(
            f"The text has changed since the checkpoint was saved: {name} {change}. {PUT_BACK}"
        )
    return found
