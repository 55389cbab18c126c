"""
Corpora: one tokenised sentence a line, in one file or many, plain or gzip.
"""

import glob
import gzip
import os
import random
import zlib
from pathlib import Path
from typing import IO, Callable, Iterable, Iterator, List, Optional, Union

from allennlp.common.checks import ConfigurationError

PathOrPaths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]

BLOCK_BYTES = 64 * 2**20
"""Lines are shuffled within blocks of this size: a usual shard, and it fits into any memory."""


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
                    f"corpus, or a glob such as {os.path.join(name, '**', '*.txt')}"
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
    file: Path, block_bytes: int, on_read: Optional[Callable[[int], object]] = None
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
    """
    with open(file, "rb") as raw:
        stream: IO[bytes] = raw
        if file.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        position = 0
        while True:
            try:
                lines = stream.readlines(block_bytes)
            except (OSError, EOFError, zlib.error) as error:
                raise ConfigurationError(f"Can't read {file}: {error}") from error
            if on_read is not None:
                on_read(raw.tell() - position)
                position = raw.tell()
            if not lines:
                return
            yield lines


def undecodable(file: Path, number: int, error: UnicodeDecodeError) -> ConfigurationError:
    """The error for a line that is not UTF-8."""
    byte = error.object[error.start]
    return ConfigurationError(
        f"{file}, line {number}: byte 0x{byte:02x} is not UTF-8 ({error.reason}); convert the "
        'file, or set encoding_errors to "replace" to read such bytes as U+FFFD'
    )


def split_words(line: bytes, encoding_errors: str = "strict") -> List[str]:
    """
    The words of a line: what ASCII white space separates. Other spaces (no-break, ideographic,
    ...) are parts of words.
    """
    words = b" ".join(line.split()).decode("utf-8", encoding_errors)
    return words.split(" ") if words else []


def read_sentences(
    files: Iterable[Path],
    *,
    encoding_errors: str = "strict",
    shuffle: Optional[random.Random] = None,
) -> Iterator[List[str]]:
    """
    # Parameters

    files : `Iterable[Path]`
    encoding_errors : `str`, optional (default = `"strict"`)
        What to do with bytes that are not UTF-8: "strict" (an error that names file and line) or
        "replace" (by U+FFFD).
    shuffle : `random.Random`, optional (default = `None`)
        If given, it draws the order of the files, and that of the lines in each block of 64 MB of
        a file. The memory needed does not depend on the size of the files.

    # Returns

    `Iterator[List[str]]`
        The words of each line. An empty line is a sentence without words.
    """
    files = list(files)
    if shuffle is not None:
        shuffle.shuffle(files)
    for file in files:
        number = 1
        for lines in read_blocks(file, 2**20 if shuffle is None else BLOCK_BYTES):
            order = list(range(len(lines)))
            if shuffle is not None:
                shuffle.shuffle(order)
            for i in order:
                try:
                    yield split_words(lines[i], encoding_errors)
                except UnicodeDecodeError as error:
                    raise undecodable(file, number + i, error) from None
            number += len(lines)
