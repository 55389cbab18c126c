import functools
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from allennlp_elmo_plugin.bilm import parallel
from allennlp_elmo_plugin.bilm.parallel import run_in_parallel
from tests.support.testing import fork


@pytest.mark.parametrize("n_threads", [2, 3])
def test_only_the_workers_have_one_thread_of_torch(n_threads, request):
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(n_threads)
    parallel._workers.cache_clear()
    together = threading.Barrier(2)

    def count():
        together.wait(60)
        return torch.get_num_threads()

    assert run_in_parallel([count] * 8) == [1] * 8
    assert torch.get_num_threads() == n_threads
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result(60) == n_threads


def test_a_child_process_has_workers_of_its_own():
    run_in_parallel([threading.get_ident] * 2)

    def child():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # kills a child that waits for ever
        assert threading.get_ident() not in run_in_parallel([threading.get_ident] * 2)

    assert fork(child) == 0


POOL = """
import multiprocessing
from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids

batch = [["a", "cat"] * 12] * 16
elmo, embedder = Elmo("tiny").requires_grad_(False), ElmoEmbedder("tiny")
for function, argument in ((elmo, batch_to_ids(batch)), (embedder.embed_batch, batch)):
    function(argument)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert len(pool.map_async(function, [argument] * 3).get(60)) == 3
"""


def test_a_pool_of_forked_processes_uses_a_model_that_has_embedded(subprocess_environment):
    environment = {**subprocess_environment, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", POOL], env=environment, check=True, timeout=200)
