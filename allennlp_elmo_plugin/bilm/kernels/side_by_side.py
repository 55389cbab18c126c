"""
Two independent computations at once on the CPU, in a thread each.

Rule: inside its thread, a computation uses one thread of torch. An operation that two threads share
ends when both have done their part, so another process on one of the two cores makes both wait, at
each of the thousands of operations of a recurrence. Apart, two computations meet once, at their end.
It is done where torch has two or three threads; with more, more than two cores can be used. Results
don't depend on the thread, to the bit, and neither the caller's number of threads nor that of new
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

_starting = threading.Lock()


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
    futures: List["Future[T]"] = []
    try:
        for function in functions:
            futures.append(_workers.submit(in_this_call(function)))
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


def _use_one_thread() -> None:
    """
    Let torch use one thread in this new thread.
    """
    with _starting:
        # torch gives new threads the number that was set last, in whatever thread.
        of_new_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        restore = threading.Thread(target=torch.set_num_threads, args=(of_new_threads,))
        restore.start()
        restore.join()


def _start_again() -> None:
    """
    Make the pool. It has no threads until they are needed.
    """
    global _workers, _starting
    _starting = threading.Lock()
    # As many calls may use it at the same time as there are cores for them.
    _workers = ThreadPoolExecutor(max(os.cpu_count() or 1, 2), "biLM", _use_one_thread)


_start_again()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_start_again)
