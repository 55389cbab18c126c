"""
Corpora to train on: one tokenised sentence a line, in one file or many, read in order or shuffled,
from the start or from the place of a checkpoint.
"""

import glob
import os
import random
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.data.text_check import TextCheck
from allennlp_elmo_plugin.files.text_lines import join_lines, not_utf8, open_lines, split_words
from allennlp_elmo_plugin.files.whole import is_special

PathOrPaths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]

BLOCK_BYTES = 64 * 2**20
"""Lines are shuffled within blocks of this size, which fit into any memory."""

UNSHUFFLED_BLOCK_BYTES = 2**20

_READ_BYTES = 2**18

# Of a corpus, and of each file at least, the bytes whose encoding is checked before training.
_CHECKED_BYTES, _CHECKED_BYTES_OF_A_FILE = 64 * 2**20, 2**16

PUT_BACK = (
    "A recovered run continues at its place in the text: put the files back as they were, or start "
    "a new run in another folder"
)


def find_files(paths: PathOrPaths) -> List[Path]:
    """
    Find the files of a corpus.

    # Parameters

    paths : `str`, `os.PathLike`, or several of them
        Each a file, a folder (all files in it but hidden ones) or a glob.

    # Returns

    `List[Path]`
        In the order of `paths`, the files of a folder or a glob sorted by name. Each file once.

    # Raises

    `ConfigurationError`
        A path is empty or missing, a folder has no files, a glob no match, or no file has text.
    """
    files: List[Path] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        name = os.fspath(path)
        if not name:
            raise ConfigurationError(
                "The name of the text is empty; give a file, a folder or a glob of text files"
            )
        if os.path.isfile(name):
            found = [Path(name)]
        elif os.path.isdir(name):
            found = [f for f in sorted(Path(name).iterdir()) if f.is_file() and f.name[0] != "."]
            if not found:
                raise ConfigurationError(
                    f"The folder {name} has no files; give a folder that holds the files of a "
                    f"corpus, or a glob such as {os.path.join(glob.escape(name), '**', '*.txt')}"
                )
        elif glob.has_magic(name):
            found = [Path(f) for f in sorted(glob.glob(name, recursive=True)) if os.path.isfile(f)]
            if not found:
                raise ConfigurationError(
                    f"No file matches {name} (looked from {os.getcwd()}); check the pattern"
                )
        else:
            problem = f"does not exist (looked from {os.getcwd()})"
            if is_special(name):
                problem = "is a pipe or a device, which this doesn't read"
            raise ConfigurationError(
                f"{name} {problem}; give a file, a folder or a glob of text files"
            )
        files += found
    files = list(dict.fromkeys(files))
    if not any(file.stat().st_size for file in files):
        named = ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")
        raise ConfigurationError(f"There is no text to read: {named or 'no file'} is empty")
    return files


def check_encoding(files: Sequence[Path]) -> None:
    """
    Check that the first 64 MiB of a corpus, an equal share from the start of each file, are UTF-8.

    # Raises

    `ConfigurationError`
        Names the file and the line.
    """
    n_bytes = max(_CHECKED_BYTES_OF_A_FILE, _CHECKED_BYTES // max(1, len(files)))
    for file in files:
        with open_lines(file, ConfigurationError) as text:
            number = 1
            while text.offset < n_bytes and (lines := text.read_block(_READ_BYTES)):
                for line in lines:
                    try:
                        line.decode()
                    except UnicodeDecodeError as error:
                        raise undecodable(file, number, error) from None
                    number += 1


def undecodable(file: Path, number: int, error: UnicodeDecodeError) -> ConfigurationError:
    """Return the error for a line that is not UTF-8."""
    alternative = (
        ', or read such bytes as U+FFFD (encoding_errors "replace" in a configuration, '
        "--encoding-errors replace on the command line)"
    )
    return ConfigurationError(not_utf8(str(file), number, error, alternative))


class SentenceStream:
    """
    The sentences of a corpus, one after another: its lines. An empty line is a sentence without
    words.

    `state_dict` returns the place in the corpus, and a stream of the same arguments can continue
    there without reading the text before it: it reads only the current block of the file again
    (and decompresses a compressed file up to that block).

    # Parameters

    files : `Iterable[Path]`
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8: "strict" (an error that names file and line) or
        "replace" (by U+FFFD).
    shuffle : `random.Random`, optional (default = `None`)
        If given, it draws the order of the files, and that of the lines in each block of 64 MB of
        a file. The memory needed does not depend on the size of the files.
    check : `TextCheck`, optional (default = `None`)
        Gets the text that is read.
    """

    def __init__(
        self,
        files: Iterable[Path],
        *,
        encoding_errors: str = "strict",
        shuffle: Optional[random.Random] = None,
        check: Optional[TextCheck] = None,
    ) -> None:
        self._files = list(files)
        self._check = check
        self._encoding_errors = encoding_errors
        self._seed: Optional[int] = None
        if shuffle is not None:
            shuffle.shuffle(self._files)
            # Every block has a seed of its own, so that its order doesn't depend on those before.
            self._seed = shuffle.getrandbits(64)
        self._start({"file": 0, "offset": 0, "line": 1, "checksum": 0})

    def _start(self, place: Dict[str, int]) -> None:
        self._place = place
        self._blocks = self._read_blocks(place)
        self._lines: List[bytes] = []
        self._n_bytes = 0
        self._order: Sequence[int] = []
        self._n_read = 0

    def read(self) -> bytes:
        """
        Return the next lines, about 256 kB of them, as one text for `find_words`, in UTF-8. No
        bytes at the end.
        """
        text = self._read_lines()
        if self._check is not None:
            if text:
                self._check.add(text)
            else:
                self._check.finish()
        return text

    def _read_lines(self) -> bytes:
        if self._n_read == len(self._order):
            try:
                self._next_block()
            except StopIteration:
                return b""
        n_lines = max(1, len(self._lines) * _READ_BYTES // self._n_bytes)
        numbers = self._order[self._n_read : self._n_read + n_lines]
        self._n_read += len(numbers)
        lines = [self._lines[i] for i in numbers]
        text = join_lines(lines)
        try:
            text.decode()
        except UnicodeDecodeError:
            for n_before, (i, line) in enumerate(zip(numbers, lines)):
                try:
                    split_words(line, self._encoding_errors)
                except UnicodeDecodeError as error:
                    if n_before:  # The lines before are read as if this one were right.
                        self._n_read -= len(lines) - n_before
                        return join_lines(lines[:n_before])
                    file = self._files[self._place["file"]]
                    raise undecodable(file, self._place["line"] + i, error) from None
            text = text.decode("utf-8", self._encoding_errors).encode()
        return text

    def _next_block(self) -> None:
        self._place, self._lines = next(self._blocks)
        if not self._lines[-1].endswith(b"\n"):
            self._lines[-1] += b"\n"
        self._n_bytes = sum(map(len, self._lines))
        self._n_read = 0
        self._order = range(len(self._lines))
        if self._seed is not None:
            self._order = list(self._order)
            block_seed = f"{self._seed} {self._place['file']} {self._place['offset']}"
            random.Random(block_seed).shuffle(self._order)

    def _read_blocks(self, start: Dict[str, int]) -> Iterator[Tuple[Dict[str, int], List[bytes]]]:
        """Yield blocks of lines, each with the place where it starts and its checksum."""
        block_bytes = UNSHUFFLED_BLOCK_BYTES if self._seed is None else BLOCK_BYTES
        for i in range(start["file"], len(self._files)):
            with open_lines(self._files[i], ConfigurationError) as text:
                if i == start["file"]:
                    text.seek(start["offset"], start["line"] - 1)
                while True:
                    place = {"file": i, "offset": text.offset, "line": text.number + 1}
                    lines = text.read_block(block_bytes)
                    if not lines:
                        break
                    checksum = 0
                    for line in lines:
                        checksum = zlib.crc32(line, checksum)
                    yield {**place, "checksum": checksum}, lines

    def state_dict(self, n_ahead: int = 0) -> Dict[str, int]:
        """
        Return the place in the corpus, or `n_ahead` lines before it, all from the last `read`: the
        file (in the order in which they are read), the first byte and line of the block, its
        checksum, and how many of its lines have been read.
        """
        return {**self._place, "n_read": self._n_read - n_ahead}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """
        Continue where another stream of the same arguments was.

        # Raises

        `ConfigurationError`
            The text there has changed.
        """
        self._start({**state, "checksum": 0})
        if state["n_read"] == 0:
            return
        with suppress(StopIteration):  # The file may end before.
            self._next_block()
        if self._place["checksum"] != state["checksum"]:
            raise ConfigurationError(
                f"{self._files[state['file']]} has changed since the checkpoint was saved: it had "
                f"other text from line {state['line']} on. {PUT_BACK}"
            )
        self._n_read = state["n_read"]


# The times of files advance in steps, of 10 milliseconds at most in Linux.
_TICK_NS = 20_000_000

FileDescription = Dict[str, List[int]]
"""By the name of each file of a corpus: its size, times of change, inode and checksum."""


def describe_files(
    files: Iterable[Path], known: Optional[FileDescription] = None
) -> FileDescription:
    """
    Describe files for `check_files`. Files whose size, times and inode are those in an earlier
    description, `known`, are not read again. A file that has just been changed is read once the
    next change will have another time.
    """
    known = known or {}
    described = {}
    for file in files:
        name, status = os.fspath(file), file.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        before = known.get(name, [])
        if before[:-1] != state:
            age = time.time_ns() - status.st_ctime_ns
            if 0 <= age < _TICK_NS:
                time.sleep((_TICK_NS - age) / 1e9)
            before = [*state, _checksum(file)]
        described[name] = before
    return described


def _checksum(file: Path) -> int:
    """Return the checksum of a file as it is stored."""
    checksum = 0
    with open(file, "rb") as stored:
        while block := stored.read(UNSHUFFLED_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def check_files(described: FileDescription, files: Iterable[Path]) -> FileDescription:
    """
    Check that a corpus consists of the files that `describe_files` saw, each with the same bytes,
    and describe them as they are now.

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
