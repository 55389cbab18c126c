"""What the tests of several modules share."""

import os
import threading

from tqdm import tqdm

# tqdm's lock is shared with all forked processes: if one of them is killed while it draws a bar, as
# AllenNLP's trainer does, the others wait forever.
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: tqdm.set_lock(threading.RLock()))
