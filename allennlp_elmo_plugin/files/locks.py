"""
Locks on files. Whoever opened a file with `open_locked` holds its lock until the handle is closed
or the process ends, however it ends; so no lock is ever left behind. A second handle is refused in
another process, in another thread and in the same thread. A forked process doesn't inherit the
lock. File systems without locks, and Windows, lock nothing: that is logged once for each folder.
"""

import errno
import functools
import io
import logging
import os
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, MutableSet, Union

logger = logging.getLogger(__name__)

LOCK_NAME = ".run.lock"
"""The lock of a folder. AllenNLP uses `.lock` for vocabularies."""

_held: "MutableSet[io.FileIO]" = weakref.WeakSet()


def open_locked(
    path: Union[str, "os.PathLike[str]"], create: bool = True, wait: bool = False
) -> io.FileIO:
    """
    Open a file for reading and writing, without truncating it, and lock it. Its owner alone may
    rename or remove it. If it has another owner, wait or raise a `BlockingIOError`.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_BINARY", 0)
    while True:
        file = io.FileIO(os.open(path, flags, 0o666), "r+")
        try:
            _lock(file, os.fspath(path), wait)
            # The last owner may have renamed or removed it since it was opened.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                _held.add(file)
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: io.FileIO, path: str, wait: bool) -> None:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError) as error:  # the latter on some network shares
        raise BlockingIOError(errno.EAGAIN, "another process is using it", path) from error
    except (ImportError, OSError) as error:
        _warn(os.path.dirname(os.path.abspath(path)), str(error))


@functools.cache
def _warn(folder: str, reason: str) -> None:
    logger.warning(
        "Files in %s can't be locked (%s): start nothing else that writes there", folder, reason
    )


@contextmanager
def locked_folder(folder: Path, refusal: Exception) -> Iterator[None]:
    """
    Keep other processes out of an existing folder, by a lock on its file `LOCK_NAME`, which stays.
    Raise `refusal` if another process is in it.
    """
    try:
        lock = open_locked(folder / LOCK_NAME)
    except BlockingIOError:
        raise refusal from None
    with lock:
        yield


def _close_in_child() -> None:
    """Close the copies of handles that a fork makes, which would keep the parent's locks."""
    for file in list(_held):
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
