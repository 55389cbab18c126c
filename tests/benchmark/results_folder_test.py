import os
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.results_folder import ResultsFolder

CONFIGS = {"baseline": "x", "elmo": "y"}


@pytest.mark.parametrize("task", ["ner", "ner_[a]", "ner_*", "ner_?/b"])
def test_results_whatever_the_name_of_their_task(tmp_path: Path, task: str) -> None:
    folder = ResultsFolder(tmp_path)
    settings: Dict[str, Any] = {"elmo": "", "tasks": {task: {"data": {"test": "1"}, **CONFIGS}}}
    folder.set_settings(settings)
    folder.new_training(task, "baseline", 1)
    folder.add_run(task, "baseline", 1, {})
    settings["tasks"][task]["data"]["test"] = "2"
    with pytest.raises(ConfigurationError, match="data of ner.* changed"):
        folder.set_settings(settings)


def test_results_of_another_task(tmp_path: Path) -> None:
    """`ner_[a]` is not the pattern of `ner_a`."""
    folder = ResultsFolder(tmp_path)
    folder.new_training("ner_a", "baseline", 1)
    folder.add_run("ner_a", "baseline", 1, {})
    folder.set_settings({"elmo": "", "tasks": {"ner_[a]": {"data": {"test": "1"}, **CONFIGS}}})


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="--output .*: .*/file is a file; choose another"):
        ResultsFolder(tmp_path / "file" / "out")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ConfigurationError, match="--output .*/a/b: nothing can be written to"):
        ResultsFolder(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
