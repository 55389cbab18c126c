"""Locks on files, by `flock`: they end with the process, however it ends."""

import errno
import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)


def lock(descriptor: int, path: Path, wait: bool = False) -> bool:
    """Lock an open file or folder, and return `False` if another process has locked it."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError) as error:  # Windows, and some network file systems
        logger.warning("%s can't be locked (%s): start nothing else that writes", path, error)
    return True


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of a training run for the block, or raise a `BlockingIOError`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not lock(descriptor, folder):
            message = (
                "another process is training in this folder; wait for its end, or choose another "
                "one. In distributed training each machine needs its own folder"
            )
            raise BlockingIOError(errno.EAGAIN, message, os.fspath(folder))
        yield
    finally:
        os.close(descriptor)


def open_locked(path: Path, wait: bool = False) -> io.FileIO:
    """
    Open a file and lock it until it is closed. If another process has locked it, `wait`, or raise a
    `BlockingIOError`. The file and its folder are created; the last owner may remove them.
    """
    while True:
        with suppress(FileExistsError):
            path.parent.mkdir()
        try:
            file = io.FileIO(path, "a+")
        except FileNotFoundError:
            continue
        if not lock(file.fileno(), path, wait):
            file.close()
            message = "another process is using it; wait for its end, or choose another output"
            raise BlockingIOError(errno.EAGAIN, message, os.fspath(path))
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()
