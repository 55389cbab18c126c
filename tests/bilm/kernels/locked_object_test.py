import copy
import os
import pickle
import signal
import threading

import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.kernels import matrix_product
from allennlp_elmo_plugin.bilm.kernels.locked_object import LockedObject
from allennlp_elmo_plugin.bilm.kernels.word_cache import WordCache
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support.testing import fork, write_random_elmo

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


class HeldByAThread:
    """Holds locks in another thread."""

    def __init__(self, *locks):
        self.locks = locks
        self.held, self.enough = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        for lock in self.locks:
            lock.acquire()
        self.held.set()
        self.enough.wait()
        for lock in self.locks:
            lock.release()

    def __enter__(self):
        self.thread.start()
        self.held.wait()
        return self

    def __exit__(self, *_):
        self.enough.set()
        self.thread.join()


def ends_well(function, seconds=10):
    """Whether a child process, as a data loader makes its workers, does this and ends."""

    def run():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)  # kills a child that waits for a lock
        torch.set_num_threads(1)
        function()

    return fork(run) == 0


@needs_fork
def test_a_child_process_does_not_wait_for_threads_of_its_parent(tmp_path):
    elmo = Elmo(*write_random_elmo(tmp_path), 1, dropout=0.0)
    bilm = elmo._elmo_lstm
    ids = batch_to_ids([["a", "few", "words"]])

    def call():
        with torch.no_grad():
            elmo.embed_sentences([["other", "words"]])
            elmo(ids)
        bilm.lstm.reset_states()

    call()
    table = bilm.token_layer._cache()._table
    with HeldByAThread(bilm.lstm.carried.lock, table.lock, matrix_product._engine.lock):
        assert ends_well(call)
        assert not bilm.lstm.carried.lock.acquire(blocking=False)  # here it is held
    call()


@needs_fork
def test_a_child_made_by_a_thread_that_holds_the_lock_goes_on():
    locked = LockedObject()

    def go_on():
        assert locked.lock.acquire(blocking=False)

    with locked.lock:
        assert ends_well(go_on)


@pytest.mark.parametrize("make", [LockedObject, CarriedState, lambda: WordCache(3)._table])
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_copies_have_locks_of_their_own(make, duplicate):
    original = make()
    with HeldByAThread(original.lock):
        assert duplicate(original).lock.acquire(blocking=False)
