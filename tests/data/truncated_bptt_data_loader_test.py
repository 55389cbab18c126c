import itertools
import threading

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader, Vocabulary
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer

from allennlp_elmo_plugin.data import text
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.windows import check_window_order
from tests.support.corpora import LINES, write_corpus

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


def test_other_readers_and_settings_are_refused(corpus, vocab):
    with pytest.raises(ConfigurationError, match="truncated_bptt_lm"):
        TruncatedBpttDataLoader(DatasetReader(), corpus)
    for settings in ({"num_workers": 2}, {"batches_per_epoch": 0}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(settings))} is "):
            loader(corpus, vocab, **settings)


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


def test_a_pass_that_is_not_finished_ends_its_thread(corpus, vocab):
    n_threads = threading.active_count()
    batches = iter(loader(corpus, vocab, num_workers=1))
    next(batches)
    assert threading.active_count() == n_threads + 1
    batches.close()
    assert threading.active_count() == n_threads


class MissingFileReader(TruncatedBpttLmReader):
    def read_batches(self, *args):
        yield from itertools.islice(super().read_batches(*args), 3)
        text.find_files("/not/there")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_is_missing_while_the_text_is_read(corpus, vocab, num_workers):
    n_threads = threading.active_count()
    batches = iter(loader(corpus, vocab, MissingFileReader(4, 5), num_workers=num_workers))
    assert len(list(itertools.islice(batches, 3))) == 3
    with pytest.raises(ConfigurationError, match="/not/there"):
        next(batches)
    assert threading.active_count() == n_threads


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
