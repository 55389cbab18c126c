import errno
import functools
import io
import itertools
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import types
from multiprocessing import forkserver, queues
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.data_loaders.multiprocess_data_loader import WorkerError
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer

from allennlp_elmo_plugin.data import text, truncated_bptt_data_loader
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import check_window_order
from tests.support.corpora import LINES, write_corpus
from tests.support.process_group import run_processes
from tests.support.testing import another_thread, fork

WORDS = ["<S>", "</S>", "<UNK>", *map(str, range(10))]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text"
    path.write_text("".join(" ".join(map(str, range(i % 9))) + "\n" for i in range(200)))
    return str(path)


@pytest.fixture
def vocab():
    return Vocabulary(non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": WORDS})


def loader(corpus, vocab, reader=None, **params):
    reader = reader or TruncatedBpttLmReader(4, 5)
    params = Params({"type": "truncated_bptt", **params})
    made = DataLoader.from_params(params, reader=reader, data_path=corpus)
    made.index_with(vocab)
    return made


def in_order(batches):
    previous = None
    for batch in batches:
        previous = check_window_order(batch["window"], previous)
    return previous


def equal(batches, others):
    return len(batches) == len(others) and all(
        set(batch) == set(other) and all(torch.equal(batch[key], other[key]) for key in batch)
        for batch, other in zip(batches, others)
    )


def test_batches(corpus, vocab):
    made = loader(corpus, vocab)
    batches = list(made)
    assert len(batches) == len(made) > 10
    assert in_order(batches) == len(batches) - 1
    for batch in batches:
        assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
            "tokens": (4, 5, 50),
            "targets": (4, 5),
            "tokens_reverse": (4, 5, 50),
            "targets_reverse": (4, 5),
            "window": (4, 3),
        }
        assert all(tensor.dtype == torch.long for tensor in batch.values())
    assert batches[0]["targets"][0].tolist() == [1, 3, 1, 3, 4]


def test_tail(corpus, vocab):
    made = loader(corpus, vocab, TruncatedBpttLmReader(4, 5, drop_last=False))
    batches = list(made)
    assert len(batches) == len(made)
    n_pairs = sum(i % 9 + 1 for i in range(200))
    for name in ("targets", "targets_reverse"):
        assert sum(int((batch[name] != -100).sum()) for batch in batches) == n_pairs
    for batch in batches:
        assert torch.equal(batch["targets"] == -100, (batch["tokens"] == 0).all(dim=-1))
        valid = batch["targets"] != -100
        assert not (valid[:, 1:] & ~valid[:, :-1]).any()  # a prefix


@pytest.mark.parametrize("bad", [{"batch_size": 4}, {"shuffle": True}])
def test_only_the_right_settings(corpus, vocab, bad):
    with pytest.raises(ConfigurationError):
        loader(corpus, vocab, **bad)


def test_missing_text_is_named_at_once(tmp_path, vocab):
    with pytest.raises(ConfigurationError, match="not_there.txt"):
        loader(tmp_path / "not_there.txt", vocab)


def test_other_reader_and_workers_are_refused(corpus, vocab):
    with pytest.raises(ConfigurationError, match="truncated_bptt_lm"):
        TruncatedBpttDataLoader(DatasetReader(), corpus)
    with pytest.raises(ConfigurationError, match="num_workers is 2"):
        loader(corpus, vocab, num_workers=2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_every_epoch_has_its_own_order(corpus, vocab, num_workers):
    def passes(num_workers):
        reader = TruncatedBpttLmReader(4, 5, shuffle_sentences=True)
        made = loader(corpus, vocab, reader, num_workers=num_workers)
        return [list(made) for _ in range(3)]

    first, second, third = passes(num_workers)
    assert not equal(first, second) and not equal(second, third)
    assert all(equal(*pair) for pair in zip((first, second, third), passes(0)))


def test_length_is_that_of_the_last_pass(corpus, vocab, monkeypatch):
    made = loader(corpus, vocab)
    exact = len(made)
    made = loader(corpus, vocab)
    monkeypatch.setattr(made.reader, "count_batches", lambda path: 7)
    assert len(made) == 7
    list(itertools.islice(made, 3))  # not a full pass
    assert len(made) == 7
    list(made)
    assert len(made) == exact


def test_batches_per_epoch(corpus, vocab):
    whole = list(loader(corpus, vocab))
    made = loader(corpus, vocab, batches_per_epoch=9)
    assert len(made) == 9
    assert equal(list(made) + list(made), whole[:18])


def take_one_and_wait(made, connection):
    batches = iter(made)
    next(batches)
    connection.send("started")
    time.sleep(60)


@pytest.mark.parametrize("n_batches", [0, 2])
def test_the_worker_is_killed(corpus, vocab, monkeypatch, n_batches):
    monkeypatch.setattr(truncated_bptt_data_loader, "_SECONDS_BETWEEN_LOOKS", 0.1)
    made = loader(corpus, vocab, num_workers=1)
    make = made._instances_to_batches
    are_taken = multiprocessing.Event()

    def killed(*args, **kwargs):
        yield from itertools.islice(make(*args, **kwargs), n_batches)
        are_taken.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(made, "_instances_to_batches", killed)
    batches = iter(made)
    assert len(list(itertools.islice(batches, n_batches))) == n_batches
    are_taken.set()
    with pytest.raises(ChildProcessError, match=r"exit code -9.*--recover"):
        next(batches)


def test_the_worker_is_killed_with_batches_in_its_queue(corpus, vocab):
    batches = iter(loader(corpus, vocab, num_workers=1))
    next(batches)
    (worker,) = multiprocessing.active_children()
    time.sleep(0.5)  # Now the next ones are there.
    worker.kill()
    with pytest.raises(ChildProcessError, match=r"exit code -9.*--recover"):
        list(batches)


def send_a_batch(queue):
    queue.put((("a batch", None), None))
    queue.close()
    queue.join_thread()


def die_with_lock(worker_id, queue, lock, pipe):
    pipe.close()
    send_a_batch(queue)
    queue._cond.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def die_as_it_writes(worker_id, queue, lock, pipe):
    pipe.close()
    writer = os.dup(queue._writer.fileno())
    send_a_batch(queue)
    os.write(writer, (100).to_bytes(4, "big") + b"50 of 100 bytes" * 3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("die", [die_with_lock, die_as_it_writes])
def test_what_a_killed_worker_leaves(corpus, vocab, monkeypatch, die):
    monkeypatch.setattr(truncated_bptt_data_loader, "_SECONDS_BETWEEN_LOOKS", 0.1)
    made = loader(corpus, vocab, num_workers=1)
    monkeypatch.setattr(made, "_batch_worker", die)
    results = []

    def take_all():
        try:
            for batch in made:
                results.append(batch)
                time.sleep(1)  # Now the worker has died.
        except ChildProcessError as error:
            results.append(error)

    thread = threading.Thread(target=take_all, daemon=True)
    thread.start()
    thread.join(30)
    assert [type(result) for result in results] == [str, ChildProcessError]


@pytest.mark.parametrize("n_sent", ["some", "all but one", "all"])
def test_a_batch_that_can_not_be_sent(corpus, vocab, monkeypatch, capfd, n_sent):
    n_batches = len(list(loader(corpus, vocab)))
    left = iter(range({"some": 5, "all but one": n_batches - 1, "all": n_batches}[n_sent]))
    made = loader(corpus, vocab, num_workers=1)
    work = made._batch_worker
    dumps = queues._ForkingPickler.dumps

    def send(item):
        if next(left, None) is None:
            raise MemoryError("no memory is left")
        return dumps(item)

    def work_with_little_memory(*args):
        monkeypatch.setattr(queues._ForkingPickler, "dumps", send)
        work(*args)

    monkeypatch.setattr(truncated_bptt_data_loader, "_SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr(made, "_batch_worker", work_with_little_memory)
    with pytest.raises(ChildProcessError, match="exit code 1. Continue"):
        list(made)
    assert "no memory is left" in capfd.readouterr().err


def test_a_worker_needs_no_shared_memory(corpus, vocab, monkeypatch):
    def share(tensor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(ForkingPickler._extra_reducers, torch.Tensor, share)
    assert equal(list(loader(corpus, vocab, num_workers=1)), list(loader(corpus, vocab)))


def close_and_print(batches):
    batches.close()
    print("closed")


def test_a_copy_of_a_half_read_pass_is_closed(corpus, vocab, capfd):
    whole = list(loader(corpus, vocab))
    batches = iter(loader(corpus, vocab, num_workers=1))
    first = next(batches)
    assert fork(functools.partial(close_and_print, batches)) == 0
    assert equal([first, *batches], whole)
    output = capfd.readouterr()
    assert output.out == "closed\n" and not output.err


def test_an_ended_process_is_not_killed(corpus, vocab):
    """At Python's end, when the modules that `kill` needs are gone."""
    joined = []
    worker = types.SimpleNamespace(
        _parent_pid=os.getpid(), exitcode=0, kill=None, join=lambda: joined.append(1)
    )
    loader(corpus, vocab)._join_workers([worker])
    assert joined


class PrintingReader(TruncatedBpttLmReader):
    def read_batches(self, *args):
        yield from super().read_batches(*args)
        print("read")
        raise ValueError("no more")


class MissingFileReader(TruncatedBpttLmReader):
    def read_batches(self, *args):
        yield from itertools.islice(super().read_batches(*args), 3)
        text.find_files("/not/there")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_is_missing_while_the_text_is_read(corpus, vocab, num_workers):
    batches = iter(loader(corpus, vocab, MissingFileReader(4, 5), num_workers=num_workers))
    assert len(list(itertools.islice(batches, 3))) == 3
    with pytest.raises(ConfigurationError, match="/not/there") as error:
        next(batches)
    assert not multiprocessing.active_children(), error  # whoever keeps the error


def test_what_a_reader_prints(corpus, vocab, tmp_path, monkeypatch):
    printed = tmp_path / "printed"
    with open(printed, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(WorkerError, match="no more"):
            list(loader(corpus, vocab, PrintingReader(4, 5), num_workers=1))
    assert printed.read_text() == "read\n"


@pytest.mark.parametrize("output", ["none", "closed", "no flush"])
def test_a_program_without_output(corpus, vocab, monkeypatch, output):
    closed = io.StringIO()
    closed.close()
    outputs = {"none": None, "closed": closed, "no flush": object()}
    monkeypatch.setattr(sys, "stdout", outputs[output])
    assert list(loader(corpus, vocab, num_workers=1))


def test_a_full_output(corpus, vocab, monkeypatch):
    with open("/dev/full", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(WorkerError, match="no more"):
            list(loader(corpus, vocab, PrintingReader(4, 5), num_workers=1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_as_the_worker_begins(corpus, vocab, monkeypatch, capfd, number):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    def begin(*args):
        os.kill(os.getpid(), number)
        work(*args)

    monkeypatch.setattr(truncated_bptt_data_loader, "_SECONDS_BETWEEN_LOOKS", 0.1)
    made = loader(corpus, vocab, num_workers=1)
    work = made._batch_worker
    monkeypatch.setattr(made, "_batch_worker", begin)
    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(ChildProcessError, match=f"exit code -{number:d}"):
            next(iter(made))
    finally:
        signal.signal(number, before)
    assert "Traceback" not in capfd.readouterr().err
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_signal_while_the_worker_is_started(corpus, vocab, monkeypatch):
    start = MultiProcessDataLoader._start_batch_workers

    def start_and_signal(*args):
        started = start(*args)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # Another thread may receive it.
        return started

    monkeypatch.setattr(MultiProcessDataLoader, "_start_batch_workers", start_and_signal)
    with another_thread(), pytest.raises(KeyboardInterrupt):
        next(iter(loader(corpus, vocab, num_workers=1)))
    assert not multiprocessing.active_children()


def test_a_signal_that_ends_the_worker_first(corpus, vocab, monkeypatch):
    monkeypatch.setattr(truncated_bptt_data_loader, "_SECONDS_BETWEEN_LOOKS", 0.1)
    batches = iter(loader(corpus, vocab, num_workers=1))
    next(batches)
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGINT)
    worker.join()

    def sleep(seconds):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # Another thread may receive it.

    monkeypatch.setattr(truncated_bptt_data_loader, "time", types.SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        list(batches)


def terminate_a_later_process(corpus, vocab):
    forkserver._forkserver.__init__()  # An earlier test's server is no child of this process.
    made = loader(corpus, vocab, num_workers=1, start_method="forkserver")
    context = multiprocessing.get_context("forkserver")
    workers, _ = made._start_batch_workers(context.JoinableQueue(), context)
    made._join_workers(workers)
    process = context.Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(20)
    assert process.exitcode == -signal.SIGTERM


def test_a_fork_server_accepts_signals(corpus, vocab):
    context = multiprocessing.get_context("fork")
    child = context.Process(target=terminate_a_later_process, args=(corpus, vocab))
    child.start()
    child.join()
    assert child.exitcode == 0


def start_method(rank, *arguments):
    return loader(*arguments, num_workers=1).start_method


def test_worker_of_distributed_training_is_spawned(corpus, vocab, tmp_path):
    assert run_processes(1, tmp_path, start_method, corpus, vocab) == ["spawn"]
    assert start_method(0, corpus, vocab) == "fork"


def test_worker_ends_with_a_killed_process(corpus, vocab):
    made = loader(corpus, vocab, num_workers=1)
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    reading_end, writing_end = os.pipe()
    process = fork.Process(target=take_one_and_wait, args=(made, sender))
    process.start()
    os.close(writing_end)
    receiver.recv()
    process.kill()
    # At its end once no process is left that could write.
    assert select.select([reading_end], [], [], 30)[0]
    os.close(reading_end)


class TestStockLoader:
    """AllenNLP's own loader works with the right settings, and wrong ones are noticed."""

    def stock(self, corpus, vocab, **params):
        return loader(corpus, vocab, type="multiprocess", **params)

    @pytest.mark.parametrize("params", [{}, {"max_instances_in_memory": 8}, {"num_workers": 1}])
    def test_right(self, corpus, vocab, params):
        made = self.stock(corpus, vocab, batch_size=4, **params)
        assert equal(list(made), list(loader(corpus, vocab)))

    @pytest.mark.parametrize("n_processes", [1, 2])
    @pytest.mark.parametrize(
        "settings",
        [
            {"drop_last": False},
            {"shuffle_sentences": True},
            {"shuffle_sentences": True, "drop_last": False},
            {"bidirectional": False, "max_characters_per_token": 9},
            {"max_characters_per_token": None, "drop_last": False},
            {"contiguous": True, "drop_last": False},
        ],
        ids=str,
    )
    def test_batches_equal_those_of_instances(self, corpus, vocab, settings, n_processes):
        made = []
        for type_, params in (("truncated_bptt", {}), ("multiprocess", {"batch_size": 4})):
            reader = TruncatedBpttLmReader(4, 5, **settings)
            reader._set_distributed_info(DistributedInfo(n_processes, n_processes - 1))
            made.append(list(loader(corpus, vocab, reader, type=type_, **params)))
        assert len(made[0]) > 10
        assert equal(*made)

    @pytest.mark.parametrize(
        "params",
        [
            {"batch_size": 3},
            {"batch_size": 8},
            {"batch_size": 4, "shuffle": True},
            {"batch_size": 4, "shuffle": True, "max_instances_in_memory": 8},
            {
                "batch_sampler": {
                    "type": "bucket",
                    "batch_size": 4,
                    "sorting_keys": ["tokens"],
                }
            },
        ],
    )
    def test_wrong(self, corpus, vocab, params):
        with pytest.raises(ValueError, match="truncated_bptt"):
            in_order(self.stock(corpus, vocab, **params))


class CountingModel(Model):
    def __init__(self, vocab):
        super().__init__(vocab)
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.numbers = []

    def forward(self, window, **tensors):
        self.numbers.append(int(window[0, 0]))
        return {"loss": self.weight}


@pytest.mark.parametrize("estimate", [0, 5, 500])
def test_trainer_copes_with_a_wrong_estimate(corpus, vocab, monkeypatch, estimate):
    made = loader(corpus, vocab)
    exact = len(made)
    made = loader(corpus, vocab)
    monkeypatch.setattr(made.reader, "count_batches", lambda path: estimate)
    model = CountingModel(vocab)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    GradientDescentTrainer(model, optimizer, made, num_epochs=2, cuda_device=-1).train()
    assert model.numbers == list(range(exact)) * 2


class TestState:
    """Loaders continue where others were."""

    @pytest.fixture
    def corpus(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text, "BLOCK_BYTES", 300)
        monkeypatch.setattr(text, "UNSHUFFLED_BLOCK_BYTES", 300)
        return write_corpus(tmp_path / "corpus")

    @pytest.fixture
    def make(self, corpus):
        words = ["<S>", "</S>", "<UNK>", *{word for line in LINES for word in line.split()}]

        def make(reader=None, **kwargs):
            settings = {"shuffle_sentences": True, "max_characters_per_token": None}
            reader = TruncatedBpttLmReader(4, 9, **{**settings, **(reader or {})})
            loader = TruncatedBpttDataLoader(reader, str(corpus), **kwargs)
            vocab = Vocabulary(
                non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": words}
            )
            loader.index_with(vocab)
            return loader

        return make

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_a_full_lexicon_changes_nothing(self, make, shuffle, monkeypatch):
        expected = list(make({"shuffle_sentences": shuffle}))
        monkeypatch.setattr("allennlp_elmo_plugin.data.lexicon.MAX_WORDS", 20)
        self.check(list(make({"shuffle_sentences": shuffle})), expected)

    def check(self, batches, others):
        assert equal(batches, others)

    @pytest.mark.parametrize(
        "reader",
        [
            {},
            {"drop_last": False},
            {"bidirectional": False},
            {"max_instances": 80},
            {"shuffle_sentences": False, "contiguous": True},
        ],
    )
    def test_from_everywhere(self, make, reader):
        loader = make(reader)
        expected = [list(loader), list(loader)]
        loader = make(reader)
        batches = iter(loader)
        for n_read in range(len(expected[0]) + 1):
            if n_read and (n_read % 5 == 0 or n_read + 2 > len(expected[0])):
                resumed = make(reader)
                resumed.load_state_dict(loader.state_dict())
                self.check(list(resumed), expected[0][n_read:])
                self.check(list(resumed), expected[1])
                assert len(resumed) == len(expected[1])
            next(batches, None)
        self.check(list(loader), expected[1])

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_rows_at_the_end_of_a_sentence(self, make, shuffle):
        """Earlier versions saved the last mark of a sentence that a row has read to its end."""
        reader = {"shuffle_sentences": shuffle}
        expected = list(make(reader))
        loader = make(reader)
        n_ended = 0
        for n_read, _ in enumerate(loader, 1):
            state = loader.state_dict()
            for stream, mark in zip(state["position"]["streams"], ("</S>", "<S>")):
                assert all(not row or row[-1] == mark for row in stream["rows"])
                n_ended += stream["rows"].count([])
                stream["rows"] = [row or [mark] for row in stream["rows"]]
            if n_read % 5 == 0:
                resumed = make(reader)
                resumed.load_state_dict(state)
                self.check(list(resumed), expected[n_read:])
        assert n_ended

    def test_length_is_what_is_left(self, make):
        loader = make()
        n_batches = len(list(loader))
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert len(resumed) == n_batches - 5
        list(resumed)
        assert abs(len(resumed) - n_batches) <= 1

    def test_a_worker_reads_ahead(self, make):
        expected = list(make())
        loader = make(num_workers=1)
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        state = loader.state_dict()
        batches.close()
        assert state["position"]["n_windows"] == 6
        resumed = make(num_workers=1)
        resumed.load_state_dict(state)
        self.check(list(resumed), expected[6:])
        resumed = make()
        resumed.load_state_dict(state)
        self.check(list(resumed), expected[6:])

    def test_epochs_of_some_batches(self, make):
        loader = make(batches_per_epoch=7)
        expected = [list(loader) for _ in range(9)]
        loader = make(batches_per_epoch=7)
        for epoch in range(8):
            for n_read, _ in enumerate(loader, 1):
                if n_read in (3, 7):
                    resumed = make(batches_per_epoch=7)
                    resumed.load_state_dict(loader.state_dict())
                    assert len(resumed) == 7 - n_read
                    self.check(list(resumed), expected[epoch][n_read:])
                    assert len(resumed) == 7
                    self.check(list(resumed), expected[epoch + 1])

    def test_an_abandoned_pass(self, make):
        expected = make()
        passes = [list(expected), list(expected)]
        loader = make()
        list(itertools.islice(loader, 3))
        self.check(list(loader), passes[1])

    @pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 7}])
    def test_two_loaders_of_a_reader_and_a_text(self, make, settings):
        """As where training and validation have one path: each keeps its own place."""
        alone, other = make(**settings), make()
        expected = [list(alone) for _ in range(4)]
        expected_other = [list(other) for _ in range(4)]

        loader = make(**settings)
        others = TruncatedBpttDataLoader(loader.reader, loader.data_path)
        others.index_with(loader._vocab)
        for epoch in range(3):
            batches = []
            for batch in loader:
                batches.append(batch)
                if len(batches) == 5:
                    states = loader.state_dict(), others.state_dict()
            self.check(batches, expected[epoch])
            self.check(list(others), expected_other[epoch])

            loader = make(**settings)
            others = TruncatedBpttDataLoader(loader.reader, loader.data_path)
            others.index_with(loader._vocab)
            loader.load_state_dict(states[0])
            others.load_state_dict(states[1])
            self.check(list(loader), expected[epoch][5:])
            self.check(list(others), expected_other[epoch])

    @pytest.mark.parametrize("file", ["0.txt", "2.txt"])
    def test_other_text_of_the_same_length(self, make, corpus, file):
        """A file that has been read to its end, and one that is read later."""
        loader = make({"shuffle_sentences": False})
        for _ in itertools.islice(loader, 12):
            pass
        state = loader.state_dict()
        assert state["position"]["streams"][0]["sentences"]["file"] == 1
        content = (corpus / file).read_bytes()
        (corpus / file).write_bytes(content.replace(b"7", b"8"))
        with pytest.raises(ConfigurationError, match=f"{file} has other text of the same length"):
            make({"shuffle_sentences": False}).load_state_dict(state)

    def test_other_text_before_the_first_pass(self, make, corpus):
        state = make().state_dict()
        (corpus / "0.txt").write_bytes((corpus / "0.txt").read_bytes().replace(b"7", b"8"))
        with pytest.raises(ConfigurationError, match="0.txt has other text"):
            make().load_state_dict(state)

    def test_other_text(self, make, corpus):
        loader = make()
        next(iter(loader))
        state = loader.state_dict()
        (corpus / "3.txt").write_text("more\n")
        with pytest.raises(ConfigurationError, match="3.txt is new"):
            make().load_state_dict(state)
