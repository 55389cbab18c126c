import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.benchmark.results import check_output, file_of, read_runs


def write(output: Path, task: str, seed: int, **digests: str) -> dict[str, Any]:
    run = {"task": task, "model": "elmo", "seed": seed, "digests": digests}
    file = file_of(output, task, "elmo", seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run), encoding="utf-8")
    return run


def test_runs_of_other_parameters_or_data_are_refused(tmp_path: Path) -> None:
    now = {"config": "1", "data": "2"}
    configuration: Any = SimpleNamespace(digests=lambda task, model: now)
    check_output(tmp_path / "new", configuration, ["sst5"])
    first = write(tmp_path, "sst5", 1, **now)
    other = write(tmp_path, "snli_cad/original", 1, config="3", data="4")
    (tmp_path / "results.md").touch()
    (tmp_path / ".run.lock").touch()
    check_output(tmp_path, configuration, ["sst5"])
    assert (tmp_path / "runs/sst5/elmo-1.json").exists()
    second = write(tmp_path, "sst5", 2, config="1")
    expected = {("snli_cad/original", "elmo"): [other], ("sst5", "elmo"): [first, second]}
    assert read_runs(tmp_path) == expected
    message = "sst5/elmo-2.json is not of this benchmark: data changed"
    with pytest.raises(ConfigurationError, match=message):
        check_output(tmp_path, configuration, ["sst5"])
    (tmp_path / "runs").rename(tmp_path / "thesis")
    with pytest.raises(ConfigurationError, match="not empty, and no benchmark"):
        check_output(tmp_path, configuration, ["sst5"])
