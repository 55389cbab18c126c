"""
Atomic writes of files and folders: they are written in a hidden folder, synced and renamed. One
process at a time writes an output; the next removes what a killed one left.
"""

import errno
import io
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.files.locks import locked

PathLike = str | os.PathLike[str]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, an exhausted quota, or a file over the allowed size."""

_STAGING = ".elmo.partial"


@contextmanager
def atomic_file(path: PathLike, wait: bool = False, staging: Path | None = None) -> Iterator[str]:
    """
    Write a file atomically: yield the path to write to, in the folder `staging`, by default a
    hidden one. The file gets its name when the block ends without an error; a link is replaced. If
    another process writes it, `wait`, or raise a `BlockingIOError`.
    """
    check_writable(path)
    folder, name = os.path.split(os.path.abspath(path))
    with _staging(staging or Path(folder, f".{name}.partial"), path, wait) as new:
        yield str(new / name)
        sync(new / name)
        replace(new / name, os.path.join(folder, name))
        sync_folder(folder)


def write_text(path: PathLike, text: str, errors: str = "strict") -> None:
    """Write a text atomically: UTF-8 with line feeds, on all systems."""
    with atomic_file(path) as staged:
        Path(staged).write_text(text, "utf-8", errors, newline="\n")


def check_writable(path: PathLike) -> None:
    """Raise an `OSError` unless `atomic_file` can write this file; call it before long work."""
    target = os.path.abspath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder; create it first", folder)
    if not os.path.basename(path) or os.path.exists(target) and not os.path.isfile(target):
        message = "is a folder, a device or a pipe; give the name of a file"
        raise OSError(errno.EINVAL, message, target)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot write into this folder", folder)
    if os.path.lexists(target):
        replace(target, target)


@contextmanager
def output_folder(
    path: PathLike, names: Sequence[str], force: bool | None = None
) -> Iterator[Path]:
    """
    Write the files of a folder together: yield the folder to write to. A process that
    is killed leaves the earlier files, the new ones, or a folder without the required file, the
    first of `names`. Other names may not be written, and with `force` stay as they are; it is
    `None` for a command without `--force`.
    """
    if not os.fspath(path):
        raise ValueError("the output is an empty name; give a folder")
    folder = Path(os.path.abspath(os.path.expanduser(path)))
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{path} is a file, not a folder, or in one") from None
    try:
        with _staging(folder / _STAGING, folder) as new:
            if not force and os.listdir(folder) != [_STAGING]:
                hint = ", or --force to replace what this command writes" * (force is not None)
                raise ValueError(f"The folder {path} is not empty; choose another output{hint}")
            for path in filter(os.path.isfile, (folder / name for name in names)):
                replace(path, path)
            yield new
            sync(new)
            old = new.with_name("old")
            old.mkdir()
            aside = [(folder / name, old / name) for name in names]
            _move_all([*aside, *((new / name, folder / name) for name in reversed(names))])
            sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            if is_new:
                folder.rmdir()
        raise


def _move_all(moves: Sequence[tuple[Path, Path]]) -> None:
    """Rename those files that exist, or after an error none of them."""
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            if os.path.lexists(source):
                replace(source, target)
                done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            replace(target, source)
        raise


def replace(source: PathLike, target: PathLike) -> None:
    """Rename a file, or with one path check that it can be. Windows refuses while it is open."""
    for seconds in (0.1, 0.2, 0.4, 0.8, 1.6, None):
        try:
            return os.replace(source, target)
        except PermissionError as error:
            if os.name != "nt":
                raise
            if seconds is None:
                path = os.fspath(target if os.path.lexists(target) else source)
                message = "is open in another program, or read-only; close it there, and repeat"
                raise PermissionError(errno.EACCES, message, path) from error
            time.sleep(seconds)  # A virus scanner soon closes it.


@contextmanager
def _staging(path: Path, output: PathLike, wait: bool = False) -> Iterator[Path]:
    """Yield a hidden folder for unfinished files, which is removed at the end."""
    with locked(path / "lock", wait):
        try:
            new = path / "new"  # The file may have the name of the lock.
            remove(new)  # left by a process that was killed
            remove(path / "old")
            new.mkdir()
            yield new
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            reason = os.strerror(error.errno)
            message = f"cannot write: {reason}; nothing has changed there, make room and repeat"
            raise OSError(error.errno, message, os.fspath(output)) from error
        finally:
            shutil.rmtree(path, ignore_errors=True)


class LateErrorFile(io.FileIO):
    """
    A new file for libraries that mishandle a failed write (HDF5 crashes, torch hides the reason):
    it ignores all further writes, and the `with` block ends with the error.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(os.fspath(path), "w+")
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        left = view
        try:
            while self.error is None and len(left):
                left = left[super().write(left) :]
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            if self.error is None:
                return super().truncate(size)
        except OSError as error:
            self.error = error
        return self.tell() if size is None else size

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if self.error is not None:
            raise self.error


def remove(path: PathLike) -> None:
    """Remove a file, a link or a folder with its content, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def sync(path: PathLike) -> None:
    """Wait until a file, or a folder with its content, is on the disk."""
    if os.path.isdir(path):
        for item in os.listdir(path):
            sync(os.path.join(path, item))
        sync_folder(path)
    else:
        with open(path, "r+b") as file:  # Windows syncs only what may be written.
            os.fsync(file.fileno())


def sync_folder(path: PathLike) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
