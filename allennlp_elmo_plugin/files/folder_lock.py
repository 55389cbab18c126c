"""A lock for a folder that one process at a time may work in."""

import logging
import os
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, MutableSet

from allennlp.common.checks import ConfigurationError
from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

LOCK_NAME = ".lock"

_held: "MutableSet[Any]" = weakref.WeakSet()


@contextmanager
def locked_folder(folder: Path, refusal: str) -> Iterator[None]:
    """
    Keep other processes out of a folder. The operating system releases the lock when the process
    ends, however it ends.

    # Parameters

    folder : `Path`
        An existing folder, which gets a file `.lock`.
    refusal : `str`
        What the error says if another process holds the lock.

    # Raises

    `ConfigurationError`
        Another process holds the lock.
    """
    lock = FileLock(str(folder / LOCK_NAME))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigurationError(refusal) from None
    except (OSError, NotImplementedError) as error:
        logger.warning("%s can't be locked (%s): start nothing else in it", folder, error)
    _held.add(lock)
    try:
        yield
    finally:
        _held.discard(lock)
        lock.release()


def _close_in_child() -> None:
    """
    Close the locks in a forked process: otherwise it would hold them after this process was killed.
    Newer versions of filelock do so themselves.
    """
    for lock in list(_held):
        descriptor = getattr(lock, "_lock_file_fd", None)  # until 3.11
        if descriptor is None:
            descriptor = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
        if descriptor is not None:
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
