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


@pytest.mark.parametrize("n_batches", [None, 1, 5, 1000])
@pytest.mark.parametrize("num_workers", [None, 1])
def test_epochs_are_the_passes_of_the_reader(make, corpus, n_batches, num_workers):
    """Epochs of batches continue where the last one stopped, also in the middle of the text."""
    loader = make(batches_per_epoch=n_batches, num_workers=num_workers, start_method="spawn")
    loader.reader.count_batches = lambda path: 7  # an estimate
    assert len(loader) == (n_batches or 7)
    epochs = (loader.reader.batches(corpus, epoch, 0, VOCAB) for epoch in itertools.count())
    batches = itertools.chain.from_iterable(epochs)
    for _ in range(1 if n_batches == 1000 else 3):
        found = list(loader)
        assert equal(found, list(itertools.islice(batches, len(found))))
        assert len(found) == len(loader) and len(found) == (n_batches or len(found))


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
    with pytest.raises(ConfigurationError, match="not instances: .*elmo-vocab"):
        list(make().iter_instances())


def test_batches_on_a_device(make):
    loader = make()
    for device in ("meta", "cpu"):
        loader.set_target_device(torch.device(device))
        assert {tensor.device.type for tensor in next(iter(loader)).values()} == {device}


class MissingFileReader(TruncatedBpttLmReader):
    def batches(self, *args):
        yield from itertools.islice(super().batches(*args), 3)
        find_files("/not/there")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_no_thread_outlives_a_pass_that_is_given_up_or_fails(make, num_workers):
    n_threads = threading.active_count()
    loader = make(MissingFileReader(4, 5), num_workers=num_workers)
    batches = iter(loader)
    first = next(batches)
    assert threading.active_count() == n_threads + num_workers
    batches.close()
    assert threading.active_count() == n_threads
    batches = iter(loader)  # It begins again.
    assert equal([next(batches)], [first]) and len(list(itertools.islice(batches, 2))) == 2
    with pytest.raises(ConfigurationError, match="/not/there"):
        next(batches)
    assert threading.active_count() == n_threads


@pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 17}, {"num_workers": 1}])
def test_loaders_continue_where_others_were(make, settings):
    loader = make(**settings)
    epochs = [list(loader) for _ in range(5)]
    loader = make(**settings)
    for epoch, expected in enumerate(epochs[:3]):
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


def test_two_loaders_of_a_reader_have_their_own_places(make):
    """As where training and validation have one path; what is given up begins again."""
    loader = make()
    expected = list(loader)
    loader, other = make(loader.reader), make(loader.reader)
    first = list(itertools.islice(loader, 3))
    state = loader.state_dict()
    assert list(state) == ["epoch", "n_windows", "n_given", "digest"]
    assert [*state.values()][:3] == [0, 3, 3] and len(state["digest"]) == 4
    assert equal(list(other), expected)
    loader.load_state_dict(state)
    for _ in range(2):
        assert len(loader) == len(expected) - 3
        assert equal(list(itertools.islice(loader, 2)), expected[3:5])
    assert equal(first + list(loader), expected)


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda path: path.write_bytes(path.read_bytes()[::-1]), "0.txt"),
        (lambda path: path.rename(path.with_name("new")), "0.txt, .*new"),
    ],
)
def test_a_text_that_has_changed(make, corpus, change, named):
    state = make().state_dict()
    change(corpus / "0.txt")
    with pytest.raises(ConfigurationError, match=f"{named} changed.*put the files back"):
        make().load_state_dict(state)
