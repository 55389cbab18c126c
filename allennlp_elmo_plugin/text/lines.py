"""
Lines of text. All texts are read by the same rules: they are UTF-8, plain or compressed by gzip,
whatever their names. Only a line feed ends a line, and only ASCII white space separates words. A
byte order mark at the start of a line is not part of its words.
"""

import codecs
import errno
import gzip
import io
import logging
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

MAX_LINE_BYTES = 64 * 2**20  # A small compressed file can hold a line that fills the memory.

logger = logging.getLogger(__name__)

_GZIP = b"\x1f\x8b"
# Files that people take for texts, by their first bytes, and what makes a text of them
_NO_TEXTS = {
    b"PK\x03\x04": "a zip archive or, like .docx, a document in one: unzip it, or save it as text",
    b"PAR1\x15": "a Parquet file: write its column of sentences as text, one a line, with pandas",
    b"%PDF-": "a PDF: extract its text, for instance with pdftotext",
    b"BZh": "compressed by bzip2: decompress it with bunzip2",
    b"\xfd7zXZ": "compressed by xz: decompress it with unxz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: decompress it with unzstd",
}
_N_MAGIC = max(map(len, _NO_TEXTS))
_MARK_OF_LINE = re.compile(rb"^" + codecs.BOM_UTF8, re.MULTILINE)


class SentenceLine(NamedTuple):
    """A line of a text: its number, from 0, without the white space around it, and its words."""

    number: int
    sentence: str
    words: list[str]


class TextLines:
    """
    The lines of an open file, read as a stream. The file may be open for bytes or, except for
    `read_block`, for text. Errors name the file (`name`) and the line.
    """

    def __init__(self, file: IO[Any], name: str = "") -> None:
        self.name = name or str(getattr(file, "name", "the input"))
        encoding = getattr(file, "encoding", None) or "utf-8"
        if not codecs.lookup(encoding).name.startswith("utf"):  # by default on Windows
            logger.warning(
                f"{self.name}: is read as {encoding}, as it was opened; if it is UTF-8, open it by "
                'open(..., encoding="utf-8"), or give its path'
            )
        self._stored: Any = file
        start = b"" if hasattr(file, "encoding") else _start(file)
        for magic, kind in _NO_TEXTS.items():
            if start.startswith(magic):
                raise ValueError(f"{self.name}: is no text, but {kind}")
        self._is_gzip = start.startswith(_GZIP)
        self._file: Any = gzip.GzipFile(fileobj=file) if self._is_gzip else file
        self._size_at_start = self.size
        self.number = 0  # of lines that have been read
        self.offset = 0  # bytes of text that have been read

    @property
    def size(self) -> int | None:
        """The number of bytes in the file as it is stored, if that is known."""
        with suppress(OSError, AttributeError):  # also io.UnsupportedOperation
            return os.fstat(self._stored.fileno()).st_size or None
        return None

    @property
    def position(self) -> int:
        """How many of these bytes have been read."""
        return self._stored.tell() if self._is_gzip and self.size else self.offset

    def read_block(self, n_bytes: int) -> list[bytes]:
        """Return the lines of about `n_bytes`, at most `MAX_LINE_BYTES`; none at the end."""
        block = self._read(self._file.read, n_bytes)
        block += self._read(self._file.readline, MAX_LINE_BYTES + 1)
        lines = io.BytesIO(block).readlines()
        self._count(len(lines), len(block), len(lines[-1]) if lines else 0)
        return lines

    def read_line(self) -> bytes:
        """Return the next line, with its line feed, or no bytes at the end."""
        line = self._read(self._file.readline, MAX_LINE_BYTES + 1)
        if isinstance(line, str):
            line = line.encode("utf-8", "surrogatepass")
        self._count(bool(line), len(line), len(line))
        return line

    def _count(self, n_lines: int, n_bytes: int, length: int) -> None:
        self.number += n_lines
        self.offset += n_bytes
        if length > MAX_LINE_BYTES:
            place = f"{self.name}, line {self.number}"
            raise ValueError(f"{place}: is longer than {MAX_LINE_BYTES:,} bytes; split it")

    def _read(self, read: Callable[[int], Any], n_bytes: int) -> Any:
        try:
            return read(n_bytes)
        except UnicodeDecodeError as error:  # of a file open for text
            message = not_utf8(self.name, self.number + 1, error)
        except (EOFError, OSError, zlib.error) as error:
            message = f"{self.name}: can't be read after line {self.number} ({error}); is it whole?"
        raise ValueError(message)

    def __iter__(self) -> Iterator[SentenceLine]:
        for line in iter(self.read_line, b""):
            sentence = self.decode(without_mark(line).strip())
            yield SentenceLine(self.number - 1, sentence, split_words(line))
        if self.size != self._size_at_start:
            sizes = f"from {self._size_at_start or 0:,} to {self.size or 0:,} bytes"
            raise ValueError(f"{self.name}: changed while it was read, {sizes}; repeat the command")

    def decode(self, line: bytes) -> str:
        """Decode (a part of) the line that was read last."""
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(not_utf8(self.name, self.number, error)) from None


def not_utf8(name: str, number: int, error: UnicodeDecodeError) -> str:
    """Return the message about a line that isn't UTF-8."""
    is_utf16 = b"\0" in error.object or error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
    encoding = "UTF-16" if is_utf16 else "ENCODING"
    others = "" if is_utf16 else " (ENCODING: CP1252, CP1251 or another)"
    return (
        f"{name}, line {number}: byte 0x{error.object[error.start]:02x} is not UTF-8 "
        f"({error.reason}); if it is a text, save it as UTF-8 in an editor, or by `iconv -f "
        f"{encoding} -t UTF-8 FILE > NEW_FILE`{others}"
    )


def without_mark(line: bytes) -> bytes:
    """Return a line without the byte order mark at its start."""
    return line.removeprefix(codecs.BOM_UTF8)


def split_words(line: bytes) -> list[str]:
    """Return the words of a line. No-break, ideographic and other spaces are parts of words."""
    words = b" ".join(without_mark(line).split()).decode()
    return words.split(" ") if words else []


def join_lines(lines: Iterable[bytes]) -> bytes:
    """Return lines as one text that ends with a line feed, with spaces for byte order marks."""
    text = b"".join(lines)
    if not text.endswith(b"\n"):
        text += b"\n"
    if codecs.BOM_UTF8 in text:
        text = _MARK_OF_LINE.sub(b" " * len(codecs.BOM_UTF8), text)
    return text


def _start(file: Any) -> bytes:
    if hasattr(file, "peek"):  # also a pipe has it
        return file.peek(_N_MAGIC)
    start = file.read(_N_MAGIC)
    file.seek(-len(start), os.SEEK_CUR)
    return start


@contextmanager
def open_lines(path: str | os.PathLike[str]) -> Iterator[TextLines]:
    """Open the lines of a file, or for the string `"-"` those of the standard input."""
    if path == "-":
        yield TextLines(sys.stdin.buffer, "the standard input")
        return
    if os.path.isdir(path):  # On Windows, `open` says that permission is denied.
        raise IsADirectoryError(errno.EISDIR, "expected a file, found a folder", os.fspath(path))
    with open(path, "rb") as file:
        yield TextLines(file, os.fspath(path))
