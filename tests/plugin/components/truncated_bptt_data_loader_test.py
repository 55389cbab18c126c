import functools
import itertools
import threading

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader

from allennlp_elmo_plugin.plugin.components import TruncatedBpttDataLoader, TruncatedBpttLmReader
from tests.support.corpora import LINES, vocabulary_of, write_corpus

VOCAB = vocabulary_of(LINES)
assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def make(corpus):
    def make(reader=None, vocab=VOCAB, **settings):
        reader = reader or TruncatedBpttLmReader(4, 9, None, shuffle_sentences=True)
        params = Params({"type": "truncated_bptt", **settings})
        loader = DataLoader.from_params(params, reader=reader, data_path=str(corpus))
        if vocab is not None:
            loader.index_with(vocab)
        return loader

    return make


@pytest.mark.parametrize("n_batches", [None, 1, 5, 1000])
@pytest.mark.parametrize("num_workers", [None, 1])
def test_epochs_are_the_passes_of_the_reader(make, corpus, n_batches, num_workers):
    """With `batches_per_epoch`, an epoch continues where the last one stopped."""
    loader = make(batches_per_epoch=n_batches, num_workers=num_workers, start_method="spawn")
    assert len(loader) == (n_batches or loader.reader.text_batches(corpus).count())  # an estimate
    epochs = (
        loader.reader.text_batches(corpus, VOCAB).batches(epoch) for epoch in itertools.count()
    )
    batches = itertools.chain.from_iterable(epochs)
    for _ in range(1 if n_batches == 1000 else 3):
        loaded = list(loader)
        assert_equal(loaded, list(itertools.islice(batches, len(loaded))))
        assert len(loaded) == len(loader) and len(loaded) == (n_batches or len(loaded))


def test_evaluation_reads_the_whole_text_each_time(make, corpus):
    reader = TruncatedBpttLmReader(4, 9, None, drop_last=False)
    loader, expected = make(reader, batches_per_epoch=2), list(make(reader))
    assert len(loader) == len(expected) > 2
    for _ in range(2):
        assert_equal(list(loader), expected)


def test_settings_that_are_refused(make, tmp_path):
    with pytest.raises(ConfigurationError, match="Extra parameters"):
        make(batch_size=4)
    with pytest.raises(ConfigurationError, match='for the dataset reader "truncated_bptt_lm"'):
        make(DatasetReader())
    with pytest.raises(ConfigurationError, match="not_there.txt"):  # before training
        TruncatedBpttDataLoader(TruncatedBpttLmReader(4), tmp_path / "not_there.txt")
    loader = make()
    loader.set_target_device(torch.device("meta"))
    assert all(tensor.is_meta for tensor in next(iter(loader)).values())
    with pytest.raises(ValueError, match="index_with"):
        next(iter(make(vocab=None)))
    with pytest.raises(ConfigurationError, match="not instances: .*elmo-vocab"):
        list(make().iter_instances())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_no_thread_outlives_a_pass_that_is_given_up_or_fails(make, corpus, num_workers):
    n_threads = threading.active_count()
    (corpus / "9.txt").write_bytes(b"\xff\n" * 99)
    loader = make(TruncatedBpttLmReader(4, 5), num_workers=num_workers)
    batches = iter(loader)
    first = next(batches)
    assert threading.active_count() == n_threads + num_workers
    batches.close()
    assert threading.active_count() == n_threads
    batches = iter(loader)  # from the start
    assert_equal(next(batches), first)
    with pytest.raises(ConfigurationError, match="9.txt, line 1"):
        list(batches)
    assert threading.active_count() == n_threads


@pytest.mark.parametrize("settings", [{}, {"batches_per_epoch": 17}, {"num_workers": 1}])
def test_loaders_continue_where_others_were(make, settings):
    """Loaders of the same reader don't disturb each other."""
    reader = make().reader
    loader = make(reader, **settings)
    epochs = [list(loader) for _ in range(5)]
    loader, resumed = (make(reader, **settings) for _ in range(2))
    for epoch, expected in enumerate(epochs[:3]):
        batches = iter(loader)
        for n_read in range(len(expected) + 1):
            if n_read in (0, 1, 9, len(expected) - 1, len(expected)):
                state = loader.state_dict()
                resumed.load_state_dict(state)
                if n_read < len(expected):
                    assert abs(len(resumed) + n_read - len(expected)) <= 1
                    assert_equal(list(itertools.islice(resumed, 1)), expected[n_read : n_read + 1])
                assert_equal(list(resumed), expected[n_read:])
                assert_equal(list(resumed), epochs[epoch + 1])
            next(batches, None)
    assert list(state) == ["epoch", "n_windows", "n_given", "digest"] and len(state["digest"]) == 5


def test_other_files_than_in_the_checkpoint(make, corpus):
    state = make().state_dict()
    (corpus / "0.txt").rename(corpus / "new")
    with pytest.raises(ConfigurationError, match="0.txt, .*new changed.*put the files back"):
        make().load_state_dict(state)
