"""Progress bars of commands."""

import os
import sys
import threading
from contextlib import contextmanager
from typing import Any, Iterator

from allennlp.common import logging as allennlp_logging
from allennlp.common.tqdm import TqdmToLogsWriter
from tqdm import tqdm


class _Bar(tqdm):
    """
    A bar whose lock belongs to one process. tqdm's own is shared with all forked processes, and if
    one of them is killed while it draws, the others wait forever.
    """

    @classmethod
    def renew_lock(cls) -> None:
        cls.set_lock(threading.RLock())


_Bar.renew_lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_Bar.renew_lock)


@contextmanager
def progress_bar(**settings: Any) -> Iterator[Any]:
    """
    Show a progress bar, a `tqdm` with these settings that writes where AllenNLP's bars write. It
    stays when the work is done and disappears when it fails, so that only the error is left.
    """
    with _Bar(
        **settings,
        file=TqdmToLogsWriter(),
        mininterval=2.0 if allennlp_logging.FILE_FRIENDLY_LOGGING else 0.1,
        leave=False,
        disable=sys.stderr is None,  # as with 2>&-
    ) as bar:
        yield bar
        bar.leave = True
