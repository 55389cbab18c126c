"""
Two independent computations at once on the CPU, in a thread each.

Rule: inside its thread, a computation uses one thread of torch. An operation that two threads share
ends when both have done their part, so another process on one of the two cores makes both wait at
each of the thousands of operations of a recurrence. Apart, two computations wait for each other
once. They run so where torch has two or three threads; more threads use more cores together. A
result is that of one thread, to the bit. Neither the caller's number of threads nor that of new
threads changes, except for a thread that first uses torch in the moment in which a worker starts:
it may get one thread. Any thread may use it.
"""

import functools
import os
import threading
from collections import deque
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, Callable, Deque, List, Sequence, Tuple, TypeVar

import torch

from allennlp_elmo_plugin.bilm.kernels.memory import share_memory_of_threads
from allennlp_elmo_plugin.bilm.kernels.model_call import in_modes_of_this_thread, is_observed

T = TypeVar("T")


def may_run_side_by_side(device: torch.device) -> bool:
    """
    Return whether the rule allows it for computations on this device. Modes of torch that see every
    operator see those of their own thread alone, so it is not done under them.
    """
    return (
        device.type == "cpu"
        and torch.get_num_threads() in (2, 3)
        and _has_threads_of_its_own()
        and not is_observed()
    )


def run_side_by_side(functions: Sequence[Callable[[], T]]) -> List[T]:
    """
    Return what these functions return, each called in a thread of its own, as part of the caller's
    call of the model. When one raises an exception, the caller gets it after all have ended.
    """
    workers = _take_workers(len(functions))
    if not workers:
        return [function() for function in functions]
    futures: List[Future[T]] = [Future() for _ in functions]
    try:
        for i, worker in enumerate(workers):
            worker.calls.put((futures[i], in_modes_of_this_thread(functions[i])))
        return list(map(Future.result, futures))
    finally:
        # Also after an interrupt, no thread goes on with this call.
        wait([future for future in futures if not future.cancel()])
        futures.clear()  # An error has this frame, which must not have the error.


@functools.cache
def _has_threads_of_its_own() -> bool:
    """
    Return whether the number of threads is a setting of each thread, as with OpenMP.
    """
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()


class _Worker:
    """
    A thread that makes one call after another, in which torch uses one thread. It is a daemon: at
    its end the interpreter waits for callers, which wait for their workers.

    # Raises

    RuntimeError
        If no thread can be started.
    """

    def __init__(self) -> None:
        share_memory_of_threads()
        self.calls: SimpleQueue[Tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        is_ready: Future[bool] = Future()
        threading.Thread(target=self._work, args=(is_ready,), name="biLM", daemon=True).start()
        if not is_ready.result():
            raise RuntimeError("can't start a thread beside a new worker")

    def _work(self, is_ready: "Future[bool]") -> None:
        try:
            _use_one_thread()
        except RuntimeError:
            is_ready.set_result(False)
            return
        is_ready.set_result(True)
        while True:
            self._answer(*self.calls.get())

    def _answer(self, future: "Future[Any]", function: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            _idle.append(self)
            return
        try:
            result = function()
        except BaseException as error:
            _idle.append(self)
            future.set_exception(error)
            del future  # An error has this frame, which must not have the error.
        else:
            _idle.append(self)
            future.set_result(result)


def _take_workers(number: int) -> List[_Worker]:
    """
    Return idle or new workers, or none if not all can be started: there are too many threads, or
    the interpreter is shutting down.
    """
    workers: List[_Worker] = []
    while len(workers) < number:
        try:
            workers.append(_idle.pop())
        except IndexError:
            try:
                workers.append(_Worker())
            except RuntimeError:
                _idle.extend(workers)
                return []
    return workers


def _use_one_thread() -> None:
    with _starting:
        of_new_threads = torch.get_num_threads()
        if of_new_threads != 1:
            # torch gives new threads the number that was set last, in whatever thread.
            is_set = threading.Event()
            restore = threading.Thread(target=_restore, args=(of_new_threads, is_set))
            restore.start()
            torch.set_num_threads(1)
            is_set.set()
            restore.join()


def _restore(of_new_threads: int, is_set: threading.Event) -> None:
    is_set.wait()
    torch.set_num_threads(of_new_threads)


_idle: Deque[_Worker] = deque()
# Held while a worker changes its number of threads.
_starting = threading.Lock()


def _start_again() -> None:
    """
    Make both again, in a child process, where their threads do not exist.
    """
    global _idle, _starting
    _idle = deque()
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_start_again)
