"""Corpora to train on: one tokenised sentence a line, read in order or shuffled."""

import glob
import hashlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.text.lines import join_lines, open_lines

PathOrPaths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

BLOCK_BYTES = 64 * 2**20  # Lines are shuffled within blocks of this size.
READ_BYTES = 2**18


def find_files(paths: PathOrPaths) -> list[Path]:
    """
    Return the files of a corpus. A path is a file, a folder (all files in it but hidden ones) or a
    glob; the files of a folder or a glob are sorted by name.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        name = os.fspath(path)
        pattern = glob.escape(name) if os.path.exists(name) else name
        if os.path.isdir(name):
            pattern = os.path.join(pattern, "*")
        # In the same order on Windows
        matches = sorted(glob.glob(pattern, recursive=True), key=lambda p: p.replace(os.sep, "/"))
        if not any(map(os.path.isfile, matches)):
            raise ValueError(
                f"{name or repr(name)} does not exist, or has no text files (looked from "
                f"{os.getcwd()}); give a file, a folder or a glob"
            )
        files += filter(Path.is_file, map(Path, matches))
    files = list(dict.fromkeys(files))
    if not any(file.stat().st_size for file in files):
        names = ", ".join(map(str, files))
        raise ValueError(f"There is no text to read: {names} is empty")
    return files


def name_of(files: Sequence[Path]) -> str:
    """Return what messages call a text of these files."""
    return ", ".join(map(str, files[:3])) + (", ..." if len(files) > 3 else "")


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, by its name."""
    sums = {}
    for path in files:
        with open(path, "rb") as file:
            sums[os.fspath(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def read_text(
    files: Iterable[Path],
    encoding_errors: str = "strict",
    shuffle: random.Random | None = None,
    update: Callable[[int], Any] = int,
) -> Iterator[bytes]:
    """
    Read the lines of a corpus. Yield about 256 kB of them at a time, as `join_lines` returns them.

    # Parameters

    encoding_errors : `str`, optional (default = `"strict"`)
        For bytes that are not UTF-8: "strict" (an error that names file and line) or "replace" (by
        U+FFFD).
    shuffle : `random.Random`, optional (default = `None`)
        Draws the order of the files, and of the lines in each block of 64 MB of a file.
    update : `Callable[[int], Any]`, optional
        Called with the number of bytes of the files that were read since the last call.
    """
    files = list(files)
    if shuffle is not None:
        shuffle.shuffle(files)
        seed = shuffle.getrandbits(64)
    for number, file in enumerate(files):
        for text in _read_file(file, update, None if shuffle is None else f"{seed} {number}"):
            try:
                text.decode()
            except UnicodeDecodeError:
                if encoding_errors == "strict":
                    with open_lines(file) as lines:
                        deque(lines, 0)  # to the first that isn't UTF-8, which the error names
                text = text.decode("utf-8", encoding_errors).encode()
            yield text


def _read_file(file: Path, update: Callable[[int], Any], seed: str | None) -> Iterator[bytes]:
    """Yield the lines of a file as `read_text` does, shuffled if there is a seed."""
    position = 0
    with open_lines(file) as stored:
        while lines := stored.read_block(READ_BYTES if seed is None else BLOCK_BYTES):
            update(stored.position - position)
            position = stored.position
            n_bytes = sum(map(len, lines))
            if seed is not None:
                lines[-1] = lines[-1].rstrip(b"\n") + b"\n"
                random.Random(f"{seed} {stored.offset - n_bytes}").shuffle(lines)
            n_lines = -(-len(lines) // max(1, n_bytes // READ_BYTES))
            for start in range(0, len(lines), n_lines):
                yield join_lines(lines[start : start + n_lines])
