"""
Two independent computations at once on the CPU, in a thread each.

Rule: inside its thread, a computation uses one thread of torch. An operation that two threads share
ends when both have done their part, so another process on one of the two cores makes both wait at
each of the thousands of operations of a recurrence. Apart, two computations wait for each other
once. They run so where torch has two or three threads; more threads use more cores together. A
result is that of one thread, to the bit. Neither the caller's number of threads nor that of new
threads changes, except for a thread that first uses torch in the moment in which the workers start:
it may get one thread. Any thread may use it.
"""

import functools
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Callable, List, Sequence, TypeVar

import torch

from allennlp_elmo_plugin.bilm.kernels.memory import share_memory_of_threads
from allennlp_elmo_plugin.bilm.kernels.model_call import is_observed

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
    futures: List[Future[T]] = []
    try:
        futures += [_workers().submit(_in_modes_of_this_thread(each)) for each in functions]
    except RuntimeError:  # there are too many threads, or the interpreter is shutting down
        return [function() for function in functions]
    try:
        return [future.result() for future in futures]
    finally:
        wait(futures)


@functools.cache
def _has_threads_of_its_own() -> bool:
    """
    Return whether the number of threads is a setting of each thread, as with OpenMP.
    """
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()


@functools.cache
def _workers() -> ThreadPoolExecutor:
    share_memory_of_threads()
    workers = ThreadPoolExecutor(2, "biLM", _use_one_thread)
    both_started = threading.Barrier(2)
    wait([workers.submit(both_started.wait, 60) for _ in range(2)])
    # torch gives new threads the number that was set last, in whatever thread.
    torch.set_num_threads(torch.get_num_threads())
    return workers


def _use_one_thread() -> None:
    torch.get_num_threads()  # at whose first call torch sets the number of a new thread
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    # In a child process the threads do not exist.
    os.register_at_fork(after_in_child=_workers.cache_clear)


def _in_modes_of_this_thread(function: Callable[[], T]) -> Callable[[], T]:
    """
    Return a function that another thread can call as part of the call of the model that runs in
    this one: with its modes of gradients and what `torch.set_flush_denormal` set in it.
    """
    has_grad, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    # torch doesn't tell. The processor flushes Python's numbers, too.
    flushes_denormal = sys.float_info.min / 2 == 0

    def call() -> T:
        torch.set_flush_denormal(flushes_denormal)
        with torch.inference_mode(is_inference), torch.set_grad_enabled(has_grad):
            return function()

    return call
