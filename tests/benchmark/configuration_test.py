import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark.configuration import Configuration, _Digests
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo


@pytest.mark.parametrize("reader", [{"type": "snli", "tokenizer": "whitespace"}, None])
def test_the_reader_of_validation_data(reader: Any, tmp_path: Path) -> None:
    """It reads them and the test data, as in AllenNLP; they may have another format."""
    import_plugins()
    write_random_elmo(tmp_path)
    data = {
        "train": FIXTURES / "sst.txt",
        "validation": FIXTURES / "snli.jsonl",
        "test": FIXTURES / "snli.jsonl",
    }
    config: Dict[str, Any] = {f"{split}_data_path": str(path) for split, path in data.items()}
    config["dataset_reader"] = {"type": "sst_tokens"}
    if reader:
        config["validation_dataset_reader"] = reader
    elmo = {"options_file": str(tmp_path)}  # has both files
    for name, model in (("sst5", {}), ("sst5_elmo", elmo)):
        text = json.dumps({**config, "model": model})
        (tmp_path / f"{name}.jsonnet").write_text(text, encoding="utf-8")
    configuration = Configuration({"sst5": data}, str(tmp_path), tmp_path, "{}")
    if reader:
        configuration.check(["sst5"])
    else:
        with pytest.raises(ConfigurationError, match="snli.jsonl: AllenNLP's reader 'sst_tokens'"):
            configuration.check(["sst5"])


def test_the_order_of_files_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AllenNLP's reader of CoNLL-2012 takes them as they come, and `max_instances` the first."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    digest = _Digests().of_path(tmp_path)
    assert _Digests().of_path(tmp_path) == digest
    ((folder, folders, files),) = os.walk(tmp_path)
    monkeypatch.setattr(os, "walk", lambda path: [(folder, folders, files[::-1])])
    assert _Digests().of_path(tmp_path) != digest
