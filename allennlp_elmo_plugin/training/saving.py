"""
When a training saves besides its checkpointer's rule: every ten minutes, and before a signal ends
it.
"""

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator

import torch
import torch.distributed as dist
from allennlp.training.callbacks import TrainerCallback

_SECONDS = 600.0
_NOTICE = (
    b"\nSaving and ending after this batch or validation. The same signal again ends at once, and "
    b"--recover then continues from the last checkpoint.\n"
)


class SavingCallback(TrainerCallback):
    """
    Saves a checkpoint after a batch if the last one is ten minutes old (or the checkpointer's
    `save_every_num_seconds`), or if a signal asks for the end, which then comes. It is the last of
    the callbacks, so that the checkpoint has what the others did.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._noted: Dict[int, Callable[[], Any]] = {}

    @contextmanager
    def signals_noted(self, is_worker: bool = False) -> Iterator[None]:
        """
        In the `with` block, let the first SIGINT and the first SIGTERM wait for `save`, and the
        next one end this process at once, unless it is one of several: these get a signal from the
        terminal or the scheduler, and one from the process that has started them.
        """

        def note(number: int, frame: Any) -> None:
            if not is_worker:
                signal.signal(number, signal.SIG_DFL)
            before = handlers[number]
            self._noted[number] = lambda: before(number, frame) if callable(before) else None
            os.write(2, _NOTICE)  # `print` can't be called again while it is interrupted.

        handlers: Dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        handlers = {each: before for each, before in handlers.items() if before != signal.SIG_IGN}
        try:
            for number in handlers:
                signal.signal(number, note)
            yield
        finally:
            for number, before in handlers.items():
                signal.signal(number, before)

    def on_batch(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs["is_training"]:
            seconds = trainer._checkpointer._save_every_num_seconds or _SECONDS
            self.save(trainer, time.time() - trainer._checkpointer._last_save_time >= seconds)

    def save(self, trainer: Any, is_due: bool = False) -> None:
        """Save a checkpoint if it is due or a signal has come, whose exception is then raised."""
        saves, ends = is_due, bool(self._noted)
        if trainer._distributed:  # All processes save and end after the same batch.
            flags = torch.tensor([saves, ends], dtype=torch.int, device=trainer.cuda_device)
            dist.all_reduce(flags)
            saves, ends = flags.tolist()
        if saves or ends:
            trainer._checkpointer.save_checkpoint(trainer)
        if ends:
            for raise_error in self._noted.values():
                raise_error()
            raise KeyboardInterrupt
