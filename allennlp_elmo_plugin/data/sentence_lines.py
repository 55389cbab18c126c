import gzip
import io
import os
import re
import sys
import zlib
from contextlib import contextmanager
from typing import IO, Any, Iterator, List, NamedTuple, Optional

from allennlp.common.checks import ConfigurationError

_WHITE_SPACE = " \t\n\r\x0b\x0c"
_GAP = re.compile(f"[{_WHITE_SPACE}]+")
_BYTE_ORDER_MARK = "\ufeff"
_GZIP = b"\x1f\x8b"
# A line is held in memory; without line feeds it could be all of a large or well compressed file.
_MAX_LINE = 2**26

STANDARD_INPUT = "-"


class SentenceLine(NamedTuple):
    """
    A line of a text: its number, from 0, the line without the white space around it, and its words.
    """

    number: int
    sentence: str
    words: List[str]


class SentenceLines:
    """
    The lines of an open file, one sentence each, read as a stream.

    Only ASCII's white space separates words: a no-break space is part of a word. A byte-order mark
    before the first word of a line is not. Only a line feed ends a line.

    # Parameters

    file : `IO`
        Open for bytes, which are read as UTF-8 and may be compressed by gzip, or for text.
    name : `str`, optional (default = that of the file)
        For messages.
    """

    def __init__(self, file: IO[Any], name: Optional[str] = None) -> None:
        self.name = str(getattr(file, "name", "the input")) if name is None else name
        self._raw: Any = file
        self._is_gzip = not isinstance(file, io.TextIOBase) and starts_as_gzip(file)
        self._file: Any = gzip.GzipFile(fileobj=file) if self._is_gzip else file
        self.number = 0
        """How many lines have been read."""
        self.checksum = 0
        """Of all bytes of these lines, decompressed."""
        self._n_bytes = 0

    @property
    def size(self) -> Optional[int]:
        """Bytes of the file as it is stored, if that is known."""
        try:
            size = os.fstat(self._raw.fileno()).st_size
        except (OSError, AttributeError):  # also io.UnsupportedOperation
            return None
        return size or None

    @property
    def position(self) -> int:
        """How many of these bytes have been read."""
        return self._raw.tell() if self._is_gzip else self._n_bytes

    def _next_line(self) -> Any:
        try:
            line = self._file.readline(_MAX_LINE + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ConfigurationError(
                f"{self.name}, line {self.number + 1}: the compressed file is damaged or cut off "
                f"({error}); make it anew"
            ) from error
        except UnicodeDecodeError as error:
            raise self._undecodable(error) from error
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.name}: {error.strerror}") from error
        if len(line) > _MAX_LINE:
            unit = "bytes" if isinstance(line, bytes) else "characters"
            raise ConfigurationError(
                f"{self.name}, line {self.number + 1}: is longer than {_MAX_LINE:,} {unit}; is "
                "this a text? Write one sentence a line"
            )
        return line

    def _undecodable(self, error: UnicodeError) -> ConfigurationError:
        place = f"{self.name}, line {self.number + 1}"
        if isinstance(error, UnicodeDecodeError):
            return ConfigurationError(
                f"{place}: byte {error.start + 1} of the line is not UTF-8 ({error.reason}); "
                "convert the file to UTF-8"
            )
        return ConfigurationError(f"{place}: {error}")

    def skip(self, n_lines: int) -> None:
        """
        Reads on until `number` is `n_lines`, or the file ends.
        """
        while self.number < n_lines and self._read() is not None:
            pass

    def _read(self) -> Any:
        """The next line as it is, counted; `None` at the end."""
        line = self._next_line()
        if not line:
            return None
        self.number += 1
        raw = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
        self.checksum = zlib.crc32(raw, self.checksum)
        self._n_bytes += len(raw)
        return line

    def read(self) -> Optional[SentenceLine]:
        """
        # Returns

        `Optional[SentenceLine]`
            The next line; `None` at the end.

        # Raises

        `ConfigurationError`
            It is not UTF-8, or the compressed file is damaged.
        """
        line = self._read()
        if line is None:
            return None
        if isinstance(line, bytes):
            try:
                line = line.decode("utf-8")
            except UnicodeDecodeError as error:
                self.number -= 1
                raise self._undecodable(error) from error
        sentence = line.strip(_WHITE_SPACE)
        while sentence.startswith(_BYTE_ORDER_MARK):
            sentence = sentence[1:].strip(_WHITE_SPACE)
        words = _GAP.split(sentence) if sentence else []
        return SentenceLine(self.number - 1, sentence, words)

    def __iter__(self) -> Iterator[SentenceLine]:
        while True:
            line = self.read()
            if line is None:
                return
            yield line


def starts_as_gzip(file: Any) -> bool:
    """Whether a file open for bytes is compressed; nothing of it is consumed."""
    if hasattr(file, "peek"):  # also of a pipe
        return file.peek(2)[:2] == _GZIP
    try:
        position = file.tell()
        start = file.read(2)
        file.seek(position)
    except (OSError, AttributeError):
        return False
    return start == _GZIP


@contextmanager
def open_lines(path: str) -> Iterator[SentenceLines]:
    """
    The lines of a file, plain or compressed by gzip, or for `"-"` of the standard input.
    """
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise ConfigurationError("the standard input is closed; give a file")
        yield SentenceLines(sys.stdin.buffer, "the standard input")
        return
    if os.path.isdir(path):
        raise ConfigurationError(f"{path} is a folder; give a file")
    if not os.path.exists(path):  # not `isfile`: it may be a pipe
        raise ConfigurationError(f"there is no file {path} to read")
    with open(path, "rb") as file:
        yield SentenceLines(file, path)
