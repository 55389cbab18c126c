from dataclasses import asdict

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo

from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.training import TextBatches
from tests.support.bilm_tf import REFERENCE, WORDS, read_vocabulary

TEXT = REFERENCE / "data" / "train.txt"


def test_settings_are_those_of_text_batches(tmp_path):
    settings = 2, 3, None, False, True, False, 7, "replace", True  # none is the default
    reader = TruncatedBpttLmReader(*settings, max_instances=50)
    reader._set_distributed_info(DistributedInfo(2, 1))
    text = reader.text_batches(TEXT, read_vocabulary(tmp_path / "words"), read_ahead=True)
    of_process = {"rank": 1, "world_size": 2, "max_rows": 50, "read_ahead": True}
    assert asdict(text) == asdict(TextBatches(TEXT, WORDS, *settings, **of_process))


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match='data loader "truncated_bptt"'):
        list(TruncatedBpttLmReader(4).read(TEXT))
    with pytest.raises(ConfigurationError, match="num_steps is 0; it must be at least 1"):
        TruncatedBpttLmReader(4, 0).text_batches(TEXT)
    with pytest.raises(ConfigurationError, match="manual_distributed_sharding"):
        settings = {"type": "truncated_bptt_lm", "batch_size": 4}
        DatasetReader.from_params(Params({**settings, "manual_distributed_sharding": True}))
