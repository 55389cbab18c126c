import functools

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo

from allennlp_elmo_plugin.plugin.components import TruncatedBpttDataLoader, TruncatedBpttLmReader
from tests.support.bilm_tf import REFERENCE, read_vocabulary

TEXT = REFERENCE / "data" / "train.txt"
Reader = functools.partial(TruncatedBpttLmReader, 4, 9, None)
assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)


@pytest.fixture
def make(tmp_path):
    def make(reader, path=TEXT, **settings):
        params = Params({"type": "truncated_bptt", **settings})
        loader = DataLoader.from_params(params, reader=reader, data_path=str(path))
        loader.index_with(read_vocabulary(tmp_path / "vocabulary"))
        return loader

    return make


@pytest.mark.parametrize("n_batches, num_workers", [(None, None), (5, 1)])
def test_batches_are_those_of_the_reader(make, n_batches, num_workers):
    settings = {"num_workers": num_workers, "start_method": "spawn"}
    loader = make(Reader(), batches_per_epoch=n_batches, **settings)
    text = Reader().text_batches(TEXT, batches_per_epoch=n_batches)
    text.words = loader.text.words
    assert len(loader) == len(text) and loader.text.read_ahead == bool(num_workers)
    for _ in range(2):
        assert_equal(list(loader), list(text))


def test_evaluation_reads_the_whole_text_each_time(make):
    """Also that of one process after a training in two."""
    reader = Reader(drop_last=False)
    expected = list(make(reader))
    reader._set_distributed_info(DistributedInfo(2, 1))
    loader = make(reader, batches_per_epoch=2)
    for _ in range(2):
        assert_equal(list(loader), expected)
        assert len(loader) == len(expected) > 2


def test_settings_that_are_refused(make, tmp_path):
    with pytest.raises(ConfigurationError, match="Extra parameters"):
        make(Reader(), batch_size=4)
    with pytest.raises(ConfigurationError, match='for the dataset reader "truncated_bptt_lm"'):
        make(DatasetReader())
    with pytest.raises(ConfigurationError, match="not_there.txt"):  # before training
        make(Reader(), "not_there.txt")
    loader = make(Reader())
    loader.set_target_device(torch.device("meta"))
    assert all(tensor.is_meta for tensor in next(iter(loader)).values())
    with pytest.raises(ValueError, match="index_with"):
        next(iter(TruncatedBpttDataLoader(Reader(), TEXT)))
    with pytest.raises(ConfigurationError, match="not instances: .*elmo-vocab"):
        list(loader.iter_instances())
    (tmp_path / "text").write_bytes(b"\xff\n" * 99)
    with pytest.raises(ConfigurationError, match="text, line 1"):
        list(make(Reader(), tmp_path / "text"))
