"""
Files and folders that appear whole or not at all. They are written in a hidden folder inside the
folder of their destination, synced to the disk, and then renamed. One process at a time writes an
output; the next one removes what a killed process left.
"""

import errno
import io
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, Union

from allennlp_elmo_plugin.files.locks import open_locked

PathLike = Union[str, "os.PathLike[str]"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and a file over the allowed size."""

_STAGING = ".elmo.partial"
_IGNORED = (_STAGING, "lost+found")  # Each new file system has the latter.
_LOCK = "lock"


@contextmanager
def whole_file(path: PathLike, wait: bool = False) -> Iterator[str]:
    """
    Write a file whole or not at all.

        with whole_file("options.json") as staged, open(staged, "w") as file:
            ...

    The file gets its name when the block ends without an error. A link of that name is replaced,
    not followed. The folder must exist.

    # Parameters

    path : `str`
    wait : `bool`, optional (default = `False`)
        Wait while another process is writing it, instead of raising a `BlockingIOError`.

    # Returns

    `Iterator[str]`
        The path to write to.
    """
    check_whole_file(path)
    target = os.path.abspath(path)
    folder, name = os.path.split(target)
    with Staging(Path(folder, f".{name}.partial"), target, wait) as staging:
        staged = str(staging.new_folder() / name)
        yield staged
        sync(staged)
        os.replace(staged, target)
        sync_folder(folder)


def check_whole_file(path: PathLike) -> None:
    """Raise an `OSError` unless `whole_file` can write this file; call it before long work."""
    target = os.path.abspath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder; create it first", folder)
    if os.path.isdir(target) and not os.path.islink(target):
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", target)
    if is_special(target):
        raise OSError(errno.EINVAL, "is a device or a pipe; give the name of a file", target)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot write into this folder", folder)


@contextmanager
def output_folder(path: PathLike, names: Sequence[str], force: bool = False) -> Iterator[Path]:
    """
    Write the files of a folder together or not at all. The first of `names`, which every reader
    requires, arrives last; earlier files leave before that, the first one first. So a process that
    is killed leaves the earlier files, the new ones, or a folder without the required file.

    # Parameters

    path : `str`
        The folder, created if missing. It may be a mount point.
    names : `Sequence[str]`
        The files and subfolders that may be written. Earlier ones of these names are removed, even
        if they are not written this time.
    force : `bool`, optional (default = `False`)
        Whether the folder may have content. What has other names stays.

    # Returns

    `Iterator[Path]`
        The folder to write to. What isn't in `names` is dropped at the end.

    # Raises

    `ValueError`
        The path is a file, or the folder has content.
    """
    if not os.fspath(path):
        raise ValueError("the output is an empty name; give a folder")
    folder = Path(os.path.abspath(os.path.expanduser(path)))
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    above = missing[-1].parent if missing else folder
    if not above.is_dir():
        raise ValueError(f"{above} is a file, not a folder; choose another output")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with Staging(folder / _STAGING, folder) as staging:
            if not force and any(item not in _IGNORED for item in os.listdir(folder)):
                raise ValueError(
                    f"The folder {path} is not empty; choose another output, or --force to replace "
                    "what this command writes there"
                )
            new = staging.new_folder()
            yield new
            sync(new)
            for name in names:
                remove(folder / name)
            for name in reversed(names):
                if os.path.lexists(new / name):
                    os.replace(new / name, folder / name)
            sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            for each in missing:
                each.rmdir()
        raise


class Staging:
    """
    A hidden folder for unfinished files. Its owner may find in it what a killed process left, and
    removes it at the end.

    # Parameters

    path : `Path`
        The hidden folder. Its parent must exist.
    output : `str`
        What it is for, named in errors.
    wait : `bool`, optional (default = `False`)
        Wait while another process has it, instead of raising a `BlockingIOError`.
    """

    def __init__(self, path: Path, output: PathLike, wait: bool = False) -> None:
        self.path = path
        self._output = os.fspath(output)
        self._wait = wait
        self._lock: Optional[io.FileIO] = None
        self.keep = False
        """Whether to keep the content, so that the next process can use it."""

    def __enter__(self) -> "Staging":
        while self._lock is None:
            try:
                self.path.mkdir(exist_ok=True)
                self._lock = open_locked(self.path / _LOCK, wait=self._wait)
            except FileNotFoundError:
                continue  # The last owner has just removed it.
            except BlockingIOError as error:
                raise BlockingIOError(
                    errno.EAGAIN,
                    "another process is writing it; wait for its end, or choose another output",
                    self._output,
                ) from error
            except OSError as error:
                message = f"cannot write: {error.strerror}"
                raise OSError(error.errno, message, self._output) from error
        return self

    def new_folder(self) -> Path:
        """Remove what is left here, and return a new folder for files of any name."""
        self.clear()
        new = self.path / "new"
        new.mkdir()
        return new

    def clear(self) -> None:
        """Remove everything but the lock."""
        for item in os.listdir(self.path):
            if item != _LOCK:
                remove(self.path / item)

    def __exit__(self, *raised: Any) -> None:
        assert self._lock is not None
        with self._lock:
            if not self.keep:
                shutil.rmtree(self.path, ignore_errors=True)
        error = raised[1]
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            reason = os.strerror(error.errno)
            message = f"cannot write: {reason}; nothing has changed there, make room and repeat"
            raise OSError(error.errno, message, self._output) from error


class LateErrorFile(io.FileIO):
    """
    A new file for libraries that mishandle a failed write (on a full disk HDF5 crashes the process,
    and torch hides the reason): it ignores all further writes, and the `with` block ends with the
    error.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(os.fspath(path), "w+")
        self.error: Optional[OSError] = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        n_bytes = len(view)
        try:
            while self.error is None and len(view):
                view = view[super().write(view) :]
        except OSError as error:
            self.error = error
        return n_bytes

    def truncate(self, size: Optional[int] = None) -> int:
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


def is_special(path: PathLike) -> bool:
    """Return whether this is a device or a pipe, such as `/dev/null`: never replace it."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


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
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def sync_folder(path: PathLike) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
