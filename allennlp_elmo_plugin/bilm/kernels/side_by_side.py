"""
Two independent computations at once on the CPU, in a thread each.

Rule: inside its thread, a computation uses one thread of torch. An operation that two threads share
ends when both have done their part, so another process on one of the two cores makes both wait at
each of the thousands of operations of a recurrence. Apart, two computations wait for each other
once. They run so where torch has two or three threads; more threads use more cores together. A
result is that of one thread, to the bit. Neither the caller's number of threads nor that of new
threads changes. Any thread may use it.
"""

import functools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Callable, List, Sequence, TypeVar

import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import in_this_call, is_observed

T = TypeVar("T")

# As many calls may use it at the same time as there are cores for them.
_MOST_WORKERS = max(os.cpu_count() or 1, 2)


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
    futures: List[Future[T]] = []
    try:
        for function in functions:
            futures.append(_workers.submit(_call, in_this_call(function)))
        return [future.result() for future in futures]
    except RuntimeError:
        if len(futures) == len(functions):
            raise
    finally:
        # Also after an interrupt, no thread goes on with this call.
        wait([future for future in futures if not future.cancel()])
        futures.clear()
    # No thread can be started: there are too many, or the interpreter is shutting down.
    return [function() for function in functions]


@functools.cache
def _has_threads_of_its_own() -> bool:
    """
    Return whether the number of threads is a setting of each thread, as with OpenMP.
    """
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()


def _call(function: Callable[[], T]) -> T:
    """
    Call a function in a worker, where torch uses one thread.
    """
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
    return function()


def _restore(of_new_threads: int, is_set: threading.Event) -> None:
    is_set.wait()
    torch.set_num_threads(of_new_threads)


# It starts threads when they are needed.
_workers = ThreadPoolExecutor(_MOST_WORKERS, "biLM")
# Held while a worker changes its number of threads.
_starting = threading.Lock()


def _start_again() -> None:
    """
    Make both again, in a child process, where their threads do not exist.
    """
    global _workers, _starting
    _workers = ThreadPoolExecutor(_MOST_WORKERS, "biLM")
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_start_again)
