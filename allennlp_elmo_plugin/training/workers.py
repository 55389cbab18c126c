"""The processes of distributed training, which end before the process that has started them."""

import inspect
import os
import signal
import time
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, Iterator, List

from allennlp.commands import train

from allennlp_elmo_plugin.signals import (
    Terminated,
    end_by_signal,
    let_signals_kill,
    lost_signals_sent_again,
)

# AllenNLP's own, which the plugin replaces under its name.
_train_worker = train._train_worker

_SECONDS = 30.0
"""The time that a worker has to archive its best epoch and end."""

received: List[int] = []
"""The signals that this process has received, if it is a worker."""


@contextmanager
def workers_ended() -> Iterator[None]:
    """
    If an exception leaves the `with` block, such as that of a signal, first end the workers that
    were started in it: by SIGTERM, and by SIGKILL if they are still there after 30 seconds or if
    another signal arrives.
    """
    before = active_children()
    try:
        yield
    except BaseException:
        # The processes of data loaders are daemons.
        _end([each for each in active_children() if each not in before and not each.daemon])
        raise


def _end(workers: List[BaseProcess]) -> None:
    deadline = time.monotonic() + _SECONDS
    try:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def train_worker(*args: Any, **kwargs: Any) -> Any:
    """
    AllenNLP's function of this name. In a process of distributed training, SIGTERM interrupts it as
    Ctrl-C does, so that it archives the best epoch so far. Later signals don't interrupt that: with
    Ctrl-C in a terminal, one comes from there and another one from `workers_ended`.
    """
    arguments = inspect.signature(_train_worker).bind(*args, **kwargs).arguments
    if arguments.get("world_size", 1) == 1:
        return _train_worker(*args, **kwargs)

    def interrupt(number: int, frame: Any) -> None:
        is_first = not received  # asked before: another may arrive in this function
        received.append(number)
        if is_first:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) != signal.SIG_IGN:  # as SIGINT in a shell's background job
            signal.signal(each, interrupt)
    os.register_at_fork(after_in_child=let_signals_kill)  # a data loader's processes
    try:
        with lost_signals_sent_again(on_loss=received.clear):
            return _train_worker(*args, **kwargs)
    except KeyboardInterrupt:
        pass
    # To torch, an end by `KeyboardInterrupt` is that of a training that is complete.
    end_by_signal(received[0] if received else signal.SIGINT)
