import shutil
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.task import find_tasks
from tests.support.task_data import write_task_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_task_data(tmp_path / "data")


def test_a_kind_means_all_its_folders(data: Path) -> None:
    shutil.copytree(data / "ner_made", data / "ner")
    assert list(find_tasks(data, ["ner"])) == ["ner", "ner_made"]
    (data / "ner_made" / "dev.conll4.txt").rename(data / "ner_made" / "validation.conll")
    files = {split: data / "ner_made" / f"{split}.conll4.txt" for split in ("train", "test")}
    expected = {**files, "validation": data / "ner_made" / "validation.conll"}
    assert find_tasks(data, ["ner_made"]) == {"ner_made": expected}
    (data / "snli_cad").mkdir()
    shutil.copytree(data / "snli", data / "snli_cad" / "original")
    assert list(find_tasks(data, ["snli_cad/original"])) == ["snli_cad/original"]


def test_missing_data_are_named(data: Path) -> None:
    (data / "sst5" / "train.txt").unlink()
    (data / "chunking" / "valid.txt").touch()
    for folder, name, message in (
        (data, "pos", "'pos' begins with no kind"),
        (data, "ner_other", "no folder 'ner_other'"),
        (data, "sst5", "must be called train, whatever its ending, but there are none"),
        (data, "chunking", r"validation or valid or dev.*\['dev.txt', 'valid.txt'\]"),
        (data / "nowhere", "sst5", "nowhere has no folder"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            find_tasks(folder, [name])
