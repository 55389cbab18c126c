import json
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.results import check_output, file_of, read_runs


class OneConfiguration:
    def digests(self, task: str, model: str) -> Dict[str, str]:
        return {"config": "1", "data": "2"}


def write(output: Path, task: str, model: str, seed: int, **digests: str) -> Dict[str, Any]:
    run = {"task": task, "model": model, "seed": seed, "digests": digests}
    file = file_of(output, task, model, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run), encoding="utf-8")
    return run


def test_runs_are_found_by_task_and_model(tmp_path: Path) -> None:
    assert read_runs(tmp_path) == {}
    first = write(tmp_path, "snli_cad/original", "elmo", 1)
    second = write(tmp_path, "snli_cad/original", "elmo", 2)
    other = write(tmp_path, "sst5", "baseline", 1)
    assert file_of(tmp_path, "sst5", "elmo", 3) == tmp_path / "runs/sst5/elmo-3.json"
    expected = {("snli_cad/original", "elmo"): [first, second], ("sst5", "baseline"): [other]}
    assert read_runs(tmp_path) == expected


def test_runs_of_other_parameters_or_data_are_refused(tmp_path: Path) -> None:
    configuration: Any = OneConfiguration()
    check_output(tmp_path / "new", configuration, ["sst5"])
    (tmp_path / ".hidden").touch()
    check_output(tmp_path, configuration, ["sst5"])
    write(tmp_path, "sst5", "elmo", 1, config="1", data="2")
    write(tmp_path, "ner", "elmo", 1, config="3", data="4")
    (tmp_path / "results.md").touch()
    check_output(tmp_path, configuration, ["sst5"])
    for digests, changed in (({"config": "1"}, "data"), ({}, "config, data")):
        write(tmp_path, "sst5", "elmo", 2, **digests)
        with pytest.raises(ConfigurationError, match=f"sst5/elmo-2.json is not .*: {changed} chan"):
            check_output(tmp_path, configuration, ["sst5"])
    (tmp_path / "runs").rename(tmp_path / "thesis")
    with pytest.raises(ConfigurationError, match="not empty, and no benchmark"):
        check_output(tmp_path, configuration, ["sst5"])
