import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import parallel
from allennlp_elmo_plugin.bilm.kernels.parallel import run_in_parallel
from tests.support.testing import fork


@pytest.mark.parametrize("n_threads", [2, 3])
def test_only_the_workers_have_one_thread_of_torch(n_threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(n_threads)
        parallel._workers.cache_clear()
        assert run_in_parallel([torch.get_num_threads] * 8) == [1] * 8
        assert torch.get_num_threads() == n_threads
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result(60) == n_threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_both_run_at_the_same_time_in_the_mode_of_the_caller(mode):
    together = threading.Barrier(2)

    def modes():
        together.wait(60)
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with mode():
        assert run_in_parallel([modes] * 2) == [(False, torch.is_inference_mode_enabled())] * 2
    with pytest.raises(ZeroDivisionError):
        run_in_parallel([lambda: 1, lambda: 1 // 0])


def test_a_child_process_has_workers_of_its_own():
    run_in_parallel([threading.get_ident] * 2)

    def child():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # kills a child that waits for ever
        assert threading.get_ident() not in run_in_parallel([threading.get_ident] * 2)

    assert fork(child) == 0
