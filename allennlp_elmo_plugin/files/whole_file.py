"""
Files that appear whole or not at all. A file is written in a hidden staging folder inside the
folder of its destination, synced to the disk, and then renamed. A staging folder belongs to the
process that holds the lock on its file `lock` (see `locks`): a second writer of the same output
waits or is refused. The owner removes the folder at the end; if it was killed, the next writer
does. (Without locks a second writer is not noticed, and the first one fails.)
"""

import errno
import io
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Optional, Union

from allennlp_elmo_plugin.files.locks import open_locked

PathLike = Union[str, "os.PathLike[str]"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and a file over the allowed size."""

_LOCK = "lock"


@contextmanager
def whole_file(path: PathLike, wait: bool = False) -> Iterator[str]:
    """
    Write a file whole or not at all.

        with whole_file("options.json") as staged, open(staged, "w") as file:
            ...

    The file gets its name when the block ends without an error. A link of that name is replaced,
    not followed.

    # Parameters

    path : `str`
        The file. Its folder must exist.
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
        staging.clear()
        new = staging.path / "new"  # The file may have the name of the lock.
        new.mkdir()
        staged = str(new / name)
        yield staged
        sync(staged)
        os.replace(staged, target)
        sync_folder(folder)


def check_whole_file(path: PathLike) -> None:
    """
    Check that `whole_file` can write a file of this name, before the work whose result it is.

    # Raises

    `OSError`
    """
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


class LateErrorFile(io.FileIO):
    """
    A new file for libraries that mishandle a failed write (on a full disk HDF5 crashes the process,
    and torch hides the reason): it silently ignores all further writes, and the `with` block ends
    with the error.
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


class Staging:
    """
    A hidden folder for unfinished files. Its owner may find in it what a killed process left (see
    `clear`), and removes it at the end.

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
        """Whether to leave the content to the next process, which must not be lost."""

    def __enter__(self) -> "Staging":
        try:
            while self._lock is None:
                self._lock = self._acquire()
        except BlockingIOError as error:
            raise BlockingIOError(
                errno.EAGAIN,
                "another process is writing it; wait for its end, or choose another output",
                self._output,
            ) from error
        except OSError as error:
            raise OSError(error.errno, f"cannot write: {error.strerror}", self._output) from error
        return self

    def _acquire(self) -> Optional[io.FileIO]:
        """Return the locked file, or `None` if its last owner has just removed it."""
        if os.path.islink(self.path) or os.path.isfile(self.path):
            os.remove(self.path)
        try:
            os.mkdir(self.path)
        except FileExistsError:
            pass
        path = self.path / _LOCK
        if os.path.islink(path):
            os.remove(path)
        try:
            return open_locked(path, wait=self._wait)
        except FileNotFoundError:
            return None

    def clear(self) -> None:
        """Remove everything but the lock."""
        for item in os.scandir(self.path):
            if item.name != _LOCK:
                remove(item.path)

    def __exit__(self, *raised: Any) -> None:
        assert self._lock is not None
        if self._lock.closed:
            return  # This is a forked process, and the folder belongs to its parent.
        try:
            if not self.keep:
                self.clear()
                os.remove(self.path / _LOCK)
                self._lock.close()  # NFS keeps a removed file in its folder until it is closed.
                os.rmdir(self.path)
        except OSError:
            pass  # The next process has it already, or will remove the rest.
        finally:
            self._lock.close()
            self._lock = None
        error = raised[1]
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            reason = os.strerror(error.errno)
            message = f"cannot write: {reason}; nothing has changed there, make room and repeat"
            raise OSError(error.errno, message, self._output) from error


def is_special(path: PathLike) -> bool:
    """
    Return whether this is neither a file nor a folder, such as `/dev/null`, which an administrator
    could replace by a file.
    """
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def remove(path: PathLike) -> None:
    """Remove a file, a link or a folder with its content, if it exists."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    except FileNotFoundError:
        pass


def sync(path: PathLike) -> None:
    """Wait until a file, or a folder with its content, is on the disk."""
    if os.path.islink(path):
        return
    if os.path.isdir(path):
        for item in os.scandir(path):
            sync(item.path)
        sync_folder(path)
        return
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: PathLike) -> None:
    """Wait until the names in a folder are on the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # The file system can't do it.
    finally:
        os.close(descriptor)
