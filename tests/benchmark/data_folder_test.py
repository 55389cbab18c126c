"""Which tasks there are in a folder of data."""

import shutil
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.data_folder import find_tasks
from tests.support.task_data import write_task_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_task_data(tmp_path / "data")


def test_a_kind_is_all_its_folders(data: Path) -> None:
    shutil.copytree(data / "ner_made", data / "ner")
    assert list(find_tasks(data, ["ner"])) == ["ner", "ner_made"]
    assert list(find_tasks(data, ["ner_made"])) == ["ner_made"]
    with pytest.raises(ConfigurationError, match="names no task"):
        find_tasks(data, [])


def test_missing_data(data: Path) -> None:
    with pytest.raises(ConfigurationError, match="no known kind"):
        find_tasks(data, ["pos"])
    with pytest.raises(ConfigurationError, match="'ner_other'"):
        find_tasks(data, ["ner_other"])
    (data / "sst5" / "train.txt").unlink()
    with pytest.raises(ConfigurationError, match="train"):
        find_tasks(data, ["sst5"])
    (data / "chunking" / "valid.txt").touch()
    with pytest.raises(ConfigurationError, match=r"dev.txt.*valid.txt"):
        find_tasks(data, ["chunking"])
    with pytest.raises(ConfigurationError, match="nowhere"):
        find_tasks(data / "nowhere", ["sst5"])
