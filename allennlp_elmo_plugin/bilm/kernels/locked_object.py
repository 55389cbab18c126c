"""
Locks of objects that one thread at a time changes.

Rule: a lock belongs to one object of one process. A copy of the object, also by a pickle, has
another lock. So has the object in a child process made by `fork`, where the thread that may hold
the parent's lock does not exist.
"""

import os
import threading
import weakref
from typing import Any, Dict


class LockedObject:
    """
    An object with a `lock`. Methods that hold it leave the object usable after each line, since a
    child process may begin there.
    """

    def __init__(self) -> None:
        self._set_lock()

    def _set_lock(self) -> None:
        # A thread that holds it may acquire it again.
        self.lock = threading.RLock()
        _locked_objects.add(self)

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "lock"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_lock()


_locked_objects: "weakref.WeakSet[LockedObject]" = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_locked_objects):
        each.lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
