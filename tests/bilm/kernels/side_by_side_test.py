import functools
import os
import signal
import threading
import time

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from allennlp_elmo_plugin.bilm.kernels import side_by_side
from allennlp_elmo_plugin.bilm.kernels.side_by_side import may_run_side_by_side, run_side_by_side
from tests.support.testing import fork

CPU = torch.device("cpu")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_new_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results[0]


def modes():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), may_run_side_by_side(CPU)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_only_the_workers_have_one_thread_of_torch(two_threads, n_threads):
    torch.set_num_threads(n_threads)
    side_by_side._workers.cache_clear()
    assert run_side_by_side([torch.get_num_threads] * 8) == [1] * 8
    assert torch.get_num_threads() == n_threads
    assert in_new_thread(torch.get_num_threads) == n_threads


def test_both_run_at_the_same_time():
    together = threading.Barrier(2)
    assert sorted(run_side_by_side([lambda: together.wait(60)] * 2)) == [0, 1]


def test_results_are_in_order():
    def late():
        time.sleep(0.05)
        return "late"

    assert run_side_by_side([late, lambda: "early"]) == ["late", "early"]


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.enable_grad, torch.inference_mode, lambda: torch.autocast("cpu")]
)
def test_modes_are_those_of_the_caller(two_threads, mode):
    with mode():
        expected = *modes()[:2], False  # with one thread, a worker has no workers
        assert run_side_by_side([modes] * 2) == [expected] * 2
    # They do not stay.
    assert run_side_by_side([modes] * 2) == [(True, False, False)] * 2


def test_small_numbers_are_flushed_as_in_the_caller():
    small = torch.tensor([1e-40])

    def half():
        return (small / 2).view(torch.int32).item()

    expected = [half()] * 2
    assert run_side_by_side([half] * 2) == expected != [0, 0]
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("not with this processor")
        assert run_side_by_side([half] * 2) == [half()] * 2 == [0, 0]
    finally:
        torch.set_flush_denormal(False)
    assert run_side_by_side([half] * 2) == expected


def test_it_follows_the_number_of_threads_and_the_device(two_threads):
    allowed = {}
    for n_threads in (1, 2, 3, 4):
        torch.set_num_threads(n_threads)
        allowed[n_threads] = may_run_side_by_side(CPU)
    assert allowed == {1: False, 2: True, 3: True, 4: False}
    torch.set_num_threads(2)
    assert not may_run_side_by_side(torch.device("cuda"))


@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.autocast("cpu"),
        torch.profiler.profile,
        lambda: torch.device("cpu"),
        TorchFunctionMode,
        TorchDispatchMode,
    ],
)
def test_not_under_modes_that_see_operators(two_threads, mode):
    with mode():
        assert not may_run_side_by_side(CPU)
    assert may_run_side_by_side(CPU)


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("place", [0, 1])
def test_an_error_reaches_the_caller_after_the_other_has_ended(kind, place):
    ended = []
    began = threading.Event()

    def fail():
        began.wait(60)
        raise kind("once")

    def work():
        began.set()
        time.sleep(0.05)
        ended.append(True)

    functions = [work, work]
    functions[place] = fail
    with pytest.raises(kind, match="once"):
        run_side_by_side(functions)
    assert ended == [True]
    assert run_side_by_side([lambda: 1, lambda: 2]) == [1, 2]


def test_an_interrupt_of_the_caller_waits_for_the_workers():
    ended = []
    began = threading.Event()

    def interrupt():
        began.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def work():
        began.set()
        time.sleep(0.1)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_side_by_side([work, interrupt])
    assert ended == [True]


def test_many_callers_share_the_workers(two_threads):
    def call(caller):
        for turn in range(20):
            items = (caller, turn, 0), (caller, turn, 1)
            made = run_side_by_side([functools.partial(tuple, item) for item in items])
            assert made == list(items)
        done.append(caller)

    done = []
    callers = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(16)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert sorted(done) == list(range(16))


def in_child(function):
    def child():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # kills a child that waits for ever
        function()

    return fork(child) == 0


@needs_fork
def test_a_child_process_has_workers_of_its_own():
    run_side_by_side([threading.get_ident] * 2)

    def call():
        assert threading.get_ident() not in run_side_by_side([threading.get_ident] * 2)

    assert in_child(call)
