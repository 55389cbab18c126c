import itertools
import threading

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader

from allennlp_elmo_plugin.data.text import find_files
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.corpora import LINES, equal, vocabulary_of, write_corpus

VOCAB = vocabulary_of(LINES)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def make(corpus):
    def make(reader=None, vocab=VOCAB, **settings):
        reader = reader or TruncatedBpttLmReader(4, 9, None, shuffle_sentences=True)
        params = Params({"type": "truncated_bptt", **settings})
        loader = DataLoader.from_params(params, reader=reader, data_path=str(corpus))
        loader.index_with(vocab)
        return loader

    return make


@pytest.mark.parametrize("num_workers", [None, 0, 1])
def test_batches_are_those_of_the_reader_in_every_epoch(make, corpus, num_workers):
    loader = make(num_workers=num_workers)
    for epoch in range(3):
        expected = list(loader.reader.batches(corpus, epoch, 0, VOCAB))
        assert equal(list(loader), expected) and len(expected) > 10
        assert len(loader) == len(expected)


def test_settings_that_are_refused(make, tmp_path):
    for settings in ({"batch_size": 4}, {"shuffle": True}):
        with pytest.raises(ConfigurationError, match="Extra parameters"):
            make(**settings)
    with pytest.raises(ConfigurationError, match='for the dataset reader "truncated_bptt_lm"'):
        make(DatasetReader())
    with pytest.raises(ConfigurationError, match="not_there.txt"):  # named at once
        TruncatedBpttDataLoader(TruncatedBpttLmReader(4), tmp_path / "not_there.txt")
    with pytest.raises(ValueError, match="index_with"):
        next(iter(make(vocab=None)))


@pytest.mark.parametrize("n_batches", [1, 5, 1000])
def test_epochs_of_batches(make, n_batches):
    """An epoch continues where the last one stopped, also in the middle of the text."""
    loader, whole = make(batches_per_epoch=n_batches), make()
    expected = [batch for _ in range(4) for batch in whole]
    found = [batch for _ in range(3 if n_batches < 9 else 1) for batch in loader][: len(expected)]
    assert equal(found, expected[: len(found)]) and len(found) > 2
    assert len(loader) == n_batches


def test_batches_on_a_device(make):
    loader = make()
    for device in ("meta", "cpu"):
        loader.set_target_device(torch.device(device))
        assert {tensor.device.type for tensor in next(iter(loader)).values()} == {device}


def test_a_vocabulary_is_not_made_of_instances(make):
    with pytest.raises(ConfigurationError, match="not instances: .*elmo-vocab"):
        list(make().iter_instances())


def test_a_pass_that_is_not_finished_ends_its_thread(make):
    n_threads = threading.active_count()
    loader = make(num_workers=1)
    batches = iter(loader)
    first = next(batches)
    assert threading.active_count() == n_threads + 1
    batches.close()
    assert threading.active_count() == n_threads
    assert equal([next(iter(loader))], [first])  # It begins again.


class MissingFileReader(TruncatedBpttLmReader):
    def batches(self, *args):
        yield from itertools.islice(super().batches(*args), 3)
        find_files("/not/there")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_is_missing_while_the_text_is_read(make, num_workers):
    n_threads = threading.active_count()
    batches = iter(make(MissingFileReader(4, 5), num_workers=num_workers))
    assert len(list(itertools.islice(batches, 3))) == 3
    with pytest.raises(ConfigurationError, match="/not/there"):
        next(batches)
    assert threading.active_count() == n_threads


class TestState:
    """Loaders continue where others were."""

    @pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 17}, {"num_workers": 1}])
    def test_from_everywhere(self, make, settings):
        loader = make(**settings)
        epochs = [list(loader) for _ in range(6)]
        assert len({len(loader)} | {len(epoch) for epoch in epochs}) < 3
        loader = make(**settings)
        for epoch, expected in enumerate(epochs[:4]):
            batches = iter(loader)
            for n_read in range(len(expected) + 1):
                if n_read in (0, 1, 9, len(expected) - 1, len(expected)):
                    resumed = make(**settings)
                    resumed.load_state_dict(loader.state_dict())
                    if n_read < len(expected):
                        assert abs(len(resumed) + n_read - len(expected)) <= 1
                    assert equal(list(resumed), expected[n_read:])
                    assert equal(list(resumed), epochs[epoch + 1])
                next(batches, None)

    def test_two_loaders_of_a_reader_and_a_text(self, make):
        """As where training and validation have one path: each has its own place."""
        loader = make()
        expected = [list(loader), list(loader)]
        loader, other = make(loader.reader), make(loader.reader)
        first = list(itertools.islice(loader, 5))
        states = [each.state_dict() for each in (loader, other)]
        assert equal(list(other), expected[0])
        loader.load_state_dict(states[0])
        assert equal(first + list(loader), expected[0])
        other.load_state_dict(states[1])
        assert equal(list(other) + list(other), sum(expected, []))

    def test_a_state_of_an_earlier_version(self, make):
        loader = make()
        epochs = [list(loader), list(loader)]
        # Its epoch was that of the next pass.
        assert equal(list(make(num_workers=1, start_method="spawn")), epochs[0])
        for position, expected in (
            ({"epoch": 1, "n_windows": 4}, epochs[1][4:]),
            (None, epochs[1]),
        ):
            resumed = make()
            epoch = 1 if position is None else 2
            resumed.load_state_dict(
                {"epoch": epoch, "position": position, "n_given": 4 if position else 0, "files": {}}
            )
            assert equal(list(resumed), expected)

    def test_an_iteration_that_was_given_up_begins_again(self, make):
        loader, whole = make(), list(make())
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
        assert list(state) == ["epoch", "n_windows", "n_given", "digest"]
        assert [*state.values()][:3] == [0, 3, 3] and len(state["digest"]) == 4
        loader.load_state_dict(state)
        for _ in range(2):
            assert len(loader) == len(whole) - 3
            assert equal(list(itertools.islice(loader, 2)), whole[3:5])

    @pytest.mark.parametrize(
        "change, named",
        [
            (lambda path: path.write_bytes(path.read_bytes()[::-1]), "0.txt"),
            (lambda path: path.unlink(), "0.txt"),
            (lambda path: path.rename(path.with_name("new")), "0.txt, .*new"),
            (lambda path: path.with_name("new").touch(), "new"),
        ],
    )
    def test_other_text(self, make, corpus, change, named):
        state = make().state_dict()
        change(corpus / "0.txt")
        with pytest.raises(ConfigurationError, match=f"{named} changed.*put the files back"):
            make().load_state_dict(state)
