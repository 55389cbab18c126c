"""
Run two independent computations at once on the CPU, each in a single thread. Threads that share an
operation would wait for the slowest each time: thousands of times in a recurrence.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

T = TypeVar("T")


def run_in_parallel(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Call each function in a thread, without a gradient, in the caller's inference mode."""
    is_inference = torch.is_inference_mode_enabled()

    def call(function: Callable[[], T]) -> T:
        with torch.inference_mode(is_inference), torch.no_grad():
            return function()

    futures = [_workers().submit(call, function) for function in functions]
    return [future.result() for future in futures]


@functools.cache
def _workers() -> ThreadPoolExecutor:
    workers = ThreadPoolExecutor(2, "biLM", _use_one_thread)
    both_started = threading.Barrier(2)
    wait([workers.submit(both_started.wait, 60) for _ in range(2)])
    # torch gives new threads the number that any thread set last.
    torch.set_num_threads(torch.get_num_threads())
    return workers


def _use_one_thread() -> None:
    torch.get_num_threads()  # Its first call in a thread would overwrite the number set below.
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_workers.cache_clear)
    # OpenMP would wait for threads that a child doesn't have.
    os.register_at_fork(after_in_child=_use_one_thread)
