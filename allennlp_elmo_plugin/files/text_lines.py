"""
Lines of text. All texts are read by one rule: they are UTF-8, plain or compressed by gzip, whatever
their names; only a line feed ends a line; only ASCII white space separates words; a byte order mark
at the start of a line is not part of its words.
"""

import codecs
import gzip
import io
import os
import re
import sys
import zlib
from contextlib import contextmanager
from typing import IO, Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type, Union

import numpy as np

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is refused: a small compressed file can hold one that fills the memory."""

STANDARD_INPUT = "-"

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_MARK_OF_LINE = re.compile(rb"^" + codecs.BOM_UTF8, re.MULTILINE)
_READ_ERRORS = (OSError, EOFError, zlib.error, UnicodeDecodeError)


class SentenceLine(NamedTuple):
    """
    A line of a text: its number, from 0, the line without the white space around it, and its words.
    """

    number: int
    sentence: str
    words: List[str]


class TextLines:
    """
    The lines of an open file, read as a stream, one at a time or in blocks.

    # Parameters

    file : `IO`
        Open for bytes or, for `read_line` and `read_sentence` only, for text.
    name : `str`, optional (default = that of the file)
        The name of the file in errors.
    error : `Type[Exception]`, optional (default = `ValueError`)
        The class of the errors, which name the file and the line.
    """

    def __init__(self, file: IO[Any], name: str = "", error: Type[Exception] = ValueError) -> None:
        self.name = name or str(getattr(file, "name", "the input"))
        self._error = error
        self._stored: Any = file
        self._encoding_errors = "strict"
        self.is_gzip = not isinstance(file, io.TextIOBase) and _starts_as_gzip(file)
        self._file: Any = gzip.GzipFile(fileobj=file) if self.is_gzip else file
        self.number = 0
        """How many lines have been read."""
        self.offset = 0
        """How many bytes of text have been read."""
        self.checksum = 0
        """The CRC-32 of the lines that `read_line` has read."""

    @property
    def size(self) -> Optional[int]:
        """The number of bytes in the file as it is stored, if that is known."""
        try:
            return os.fstat(self._stored.fileno()).st_size or None
        except (OSError, AttributeError):  # also io.UnsupportedOperation
            return None

    @property
    def position(self) -> int:
        """How many of these bytes have been read."""
        return self._stored.tell() if self.is_gzip else self.offset

    def seek(self, offset: int, number: int) -> None:
        """Continue at line `number`, counted from 0, which starts at byte `offset` of the text."""
        try:
            self._file.seek(offset)
        except _READ_ERRORS as error:
            raise self._unreadable(error) from error
        self.offset, self.number = offset, number

    def read_block(self, n_bytes: int) -> List[bytes]:
        """
        Read `n_bytes`, at most `MAX_LINE_BYTES`, and the rest of the last line. Return the lines,
        none at the end.
        """
        try:
            block = self._file.read(n_bytes)
            block += self._file.readline(MAX_LINE_BYTES + 1)
        except _READ_ERRORS as error:
            raise self._unreadable(error) from error
        lines = io.BytesIO(block).readlines()
        self.number += len(lines)
        self.offset += len(block)
        if lines and len(lines[-1]) > MAX_LINE_BYTES:
            raise self._too_long()
        return lines

    def read_line(self) -> bytes:
        """Return the next line, with its line feed, or no bytes at the end."""
        try:
            line = self._file.readline(MAX_LINE_BYTES + 1)
        except _READ_ERRORS as error:
            raise self._unreadable(error) from error
        if isinstance(line, str):
            self._encoding_errors = "surrogatepass"
            line = line.encode("utf-8", self._encoding_errors)
        if line:
            self.number += 1
            self.offset += len(line)
            self.checksum = zlib.crc32(line, self.checksum)
            if len(line) > MAX_LINE_BYTES:
                raise self._too_long()
        return line

    def read_sentence(self) -> Optional[SentenceLine]:
        """Return the next line with its words, or `None` at the end."""
        line = self.read_line()
        if not line:
            return None
        sentence = self.decode(without_mark(line).strip())
        return SentenceLine(self.number - 1, sentence, split_words(line, self._encoding_errors))

    def decode(self, line: bytes) -> str:
        """Decode (a part of) the line that was read last."""
        try:
            return line.decode("utf-8", self._encoding_errors)
        except UnicodeDecodeError as error:
            raise self._error(not_utf8(self.name, self.number, error)) from None

    def __iter__(self) -> Iterator[SentenceLine]:
        return iter(self.read_sentence, None)

    def skip(self, number: int) -> None:
        """Read up to line `number`, counted from 0, or to the end."""
        while self.number < number and self.read_line():
            pass

    def _too_long(self) -> Exception:
        return self._error(
            f"{self.name}, line {self.number}: is longer than {MAX_LINE_BYTES:,} bytes; is this a "
            "text? Write one sentence a line"
        )

    def _unreadable(self, error: Exception) -> Exception:
        if isinstance(error, UnicodeDecodeError):  # of a file open for text
            return self._error(not_utf8(self.name, self.number + 1, error))
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            return self._error(f"cannot read {self.name}: {error.strerror or error}")
        return self._error(
            f"{self.name}: the compressed file is damaged or cut off after line {self.number} "
            f"({error}); compress the text again"
        )


def not_utf8(name: str, number: int, error: UnicodeDecodeError, alternative: str = "") -> str:
    """
    Return the message of an error in line `number`, counted from 1. `alternative` is another way to
    read a text in an encoding of one byte a letter.
    """
    if number == 1 and error.object.startswith(_ZIP):
        return (
            f"{name}: is a zip archive or a document (.docx, .odt), not a text; save it as plain "
            "text in UTF-8"
        )
    byte = error.object[error.start]
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    is_utf16 = error.object.startswith(marks) or b"\0" in error.object
    encoding = "UTF-16" if is_utf16 else "LATIN1"
    return (
        f"{name}, line {number}: byte 0x{byte:02x} is not UTF-8 ({error.reason}); convert the file "
        f"(if it is a text, such as by `iconv -f {encoding} -t UTF-8 FILE > NEW_FILE`)"
        f"{'' if is_utf16 else alternative}"
    )


def without_mark(line: bytes) -> bytes:
    """Return a line without the byte order mark at its start."""
    return line[len(codecs.BOM_UTF8) :] if line.startswith(codecs.BOM_UTF8) else line


def split_words(line: bytes, encoding_errors: str = "strict") -> List[str]:
    """
    Return the words of a line. No-break, ideographic and other spaces are parts of words.
    """
    words = b" ".join(without_mark(line).split()).decode("utf-8", encoding_errors)
    return words.split(" ") if words else []


def join_lines(lines: Iterable[bytes]) -> bytes:
    """
    Return lines as one text for `find_words`: each ends with a line feed, and has spaces in place
    of a byte order mark.
    """
    text = b"".join(lines)
    if not text.endswith(b"\n"):
        text += b"\n"
    if codecs.BOM_UTF8 in text:
        text = _MARK_OF_LINE.sub(b" " * len(codecs.BOM_UTF8), text)
    return text


def find_words(text: bytes) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Find the words that `split_words` finds in each line.

    # Parameters

    text : `bytes`
        Whole lines, as `join_lines` returns them.

    # Returns

    `Tuple[np.ndarray, np.ndarray, np.ndarray]`
        The first byte of each word and the byte after its last, shape (words,), and the number of
        words in each line, shape (lines,).
    """
    characters = np.frombuffer(text, dtype=np.uint8)
    is_space = np.ones(len(characters) + 1, dtype=bool)  # as if the text began with one
    # Unsigned numbers below 9 wrap around, so that this is 9 (\t) to 13 (\r).
    is_space[1:] = (characters == ord(" ")) | (characters - np.uint8(ord("\t")) <= 4)
    bounds = np.flatnonzero(is_space[1:] != is_space[:-1])
    starts = bounds[::2]
    line_feeds = np.flatnonzero(characters == ord("\n"))
    return starts, bounds[1::2], np.diff(np.searchsorted(starts, line_feeds), prepend=0)


def _starts_as_gzip(file: Any) -> bool:
    if hasattr(file, "peek"):  # also a pipe has it
        return file.peek(len(_GZIP)).startswith(_GZIP)
    try:
        position = file.tell()
        start = file.read(len(_GZIP))
        file.seek(position)
    except (OSError, AttributeError):
        return False
    return start == _GZIP


@contextmanager
def open_lines(
    path: Union[str, "os.PathLike[str]"], error: Type[Exception] = ValueError
) -> Iterator[TextLines]:
    """
    Open the lines of a file, or for the string `"-"` those of the standard input. `error` is the
    class of the errors.
    """
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise error("the standard input is closed; give a file")
        yield TextLines(sys.stdin.buffer, "the standard input", error)
        return
    if os.path.isdir(path):
        raise error(f"{path} is a folder; give a file")
    if not os.path.exists(path):  # not `isfile`: it may be a pipe
        raise error(f"there is no file {path} to read")
    with open(path, "rb") as file:
        yield TextLines(file, os.fspath(path), error)
