"""
Locks on files, by `flock`: one is held until its handle is closed or the process ends, however it
ends, so none is ever left behind. Where files can't be locked (Windows, some network file systems),
a warning says so.
"""

import errno
import io
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union

logger = logging.getLogger(__name__)

LOCK_NAME = ".run.lock"
"""The lock of a folder. AllenNLP uses `.lock` for vocabularies."""


def open_locked(path: Union[str, "os.PathLike[str]"], wait: bool = False) -> io.FileIO:
    """
    Open a file for reading and writing, which is created if missing, and lock it. If another handle
    has the lock, in this process or another one, wait or raise a `BlockingIOError`.
    """
    while True:
        file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            raise BlockingIOError(
                errno.EAGAIN, "another process is using it", os.fspath(path)
            ) from None
        except (ImportError, OSError) as error:
            logger.warning("%s can't be locked (%s): start nothing else that writes", path, error)
        # The last owner may have removed it since it was opened.
        if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
        file.close()


@contextmanager
def locked_folder(folder: Path, refusal: Exception) -> Iterator[None]:
    """
    Keep other processes out of a folder, by a lock on its file `LOCK_NAME`, which stays. Raise
    `refusal` if another process is in it.
    """
    try:
        lock = open_locked(folder / LOCK_NAME)
    except BlockingIOError:
        raise refusal from None
    with lock:
        yield
