"""
Locks on files, by `flock`: they end with the process, however it ends. Where files can't be locked
(Windows, some network file systems), a warning says so.
"""

import errno
import io
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union

logger = logging.getLogger(__name__)

_LOCK_NAME = ".run.lock"  # AllenNLP uses `.lock` for vocabularies.


def open_locked(path: Union[str, "os.PathLike[str]"], wait: bool = False) -> io.FileIO:
    """
    Open a file, which is created if missing, and lock it until it is closed. If another handle has
    the lock, in this process or another one, wait or raise a `BlockingIOError`.
    """
    while True:
        file = io.FileIO(path, "a+")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            message = "another process is using it; wait for its end, or choose another output"
            raise BlockingIOError(errno.EAGAIN, message, os.fspath(path)) from None
        except (ImportError, OSError) as error:
            logger.warning("%s can't be locked (%s): start nothing else that writes", path, error)
        # The last owner may have removed it since it was opened.
        if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
        file.close()


@contextmanager
def locked_folder(folder: Path, refusal: Exception) -> Iterator[None]:
    """Lock a folder, by a file that stays there, or raise `refusal` if another process did."""
    try:
        lock = open_locked(folder / _LOCK_NAME)
    except BlockingIOError:
        raise refusal from None
    with lock:
        yield
