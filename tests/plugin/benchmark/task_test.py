import shutil

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.benchmark.task import find_tasks
from tests.support.task_data import write_task_data


def test_folders_and_files_are_found_or_named(tmp_path):
    data = write_task_data(tmp_path / "data")
    (data / "ner_made" / "dev.conll4.txt").rename(data / "ner_made" / "validation.conll")
    shutil.copytree(data / "ner_made", data / "ner")
    assert list(find_tasks(data, ["ner"])) == ["ner", "ner_made"]
    files = {split: data / "ner_made" / f"{split}.conll4.txt" for split in ("train", "test")}
    expected = {**files, "validation": data / "ner_made" / "validation.conll"}
    assert find_tasks(data, ["ner_made"]) == {"ner_made": expected}
    shutil.copytree(data / "snli", data / "snli_cad" / "original")
    assert list(find_tasks(data, ["snli_cad/original"])) == ["snli_cad/original"]
    (data / "sst5" / "train.txt").unlink()
    (data / "chunking" / "valid.txt").touch()
    for folder, name, message in (
        (data, "pos", "'pos' begins with no kind"),
        (data, "ner_other", "no folder 'ner_other'"),
        (data, "sst5", "must be called train, with any ending; there are none"),
        (data, "chunking", r"validation or valid or dev.*\['(dev|valid).txt', '(dev|valid).txt'\]"),
        (data / "nowhere", "sst5", "nowhere has no folder"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            find_tasks(folder, [name])
