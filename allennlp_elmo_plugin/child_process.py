"""Child processes that end with their parent."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """
    Make this child process end when its parent does, even if that is killed. Children may hold the
    pipes by which their siblings would notice it, and stay for ever.
    """
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
