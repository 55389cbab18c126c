import os
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.results_folder import ResultsFolder


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
