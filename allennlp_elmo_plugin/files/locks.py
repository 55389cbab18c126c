"""Locks on files, by `filelock`: they end with the process, however it ends."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """
    Lock a file for the block. If another process has locked it, `wait`, or raise a
    `BlockingIOError`. The file and its folder are made, and removed unless others need them.
    """
    lock = FileLock(path, timeout=-1 if wait else 0)
    identity = None
    while identity is None:
        with suppress(FileExistsError):
            path.parent.mkdir()
        try:
            lock.acquire()
            identity = path.stat()
        except Timeout:
            message = "another process is using it; wait for its end, or choose another output"
            raise BlockingIOError(errno.EAGAIN, message, os.fspath(path)) from None
        except FileNotFoundError:  # The last owner has just removed the folder.
            continue
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # of some network file systems
                raise
            logger.warning("%s can't be locked (%s): start nothing else that writes", path, error)
            identity = path.stat()
    try:
        yield
    finally:
        with suppress(OSError):  # On Windows, `release` removes it.
            if os.path.samestat(identity, path.stat()):
                path.unlink()
        lock.release()
        with suppress(OSError):
            path.parent.rmdir()
