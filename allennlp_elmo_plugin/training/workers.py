"""The processes of distributed training, which end before the process that has started them."""

from contextlib import contextmanager
from multiprocessing import active_children
from typing import Iterator


@contextmanager
def workers_ended() -> Iterator[None]:
    """
    If an exception leaves the `with` block, such as that of a signal, first end the workers that
    were started in it by SIGTERM, and wait until they have saved. Another signal ends them at once.
    """
    before = active_children()
    try:
        yield
    except BaseException:
        # The processes of data loaders are daemons.
        started = [each for each in active_children() if each not in before and not each.daemon]
        try:
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.join()
        finally:
            for worker in started:
                worker.kill()
        raise
