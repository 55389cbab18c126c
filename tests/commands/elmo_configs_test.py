"""`allennlp elmo-configs`."""

import os
from pathlib import Path
from typing import Any

from allennlp.common import Params

from allennlp_elmo_plugin.modules.configs import CONFIGS
from tests.support.testing import read_files


def test_copies(run: Any, monkeypatch: Any) -> None:
    configs = read_files(CONFIGS)
    monkeypatch.setenv("HOME", os.getcwd())
    shown = "files copied to ~/my/configs; what was there before is unchanged\n"
    assert run("elmo-configs '~/my/configs'") == f"{len(configs)} {shown}"
    assert read_files("my/configs") == configs
    # They can be changed, and import each other.
    Path("my/configs/elmo.libsonnet").touch()
    data = {f"{part}_DATA_PATH": "text" for part in ("TRAIN", "VALIDATION", "TEST")}
    variables = {"ELMO": "tiny", "VOCABULARY_PATH": "vocabulary", **data}
    variables.update({f"NER_{name}": value for name, value in data.items()})
    for name in ("pretrain/small", "benchmark/ner_elmo"):
        assert Params.from_file(f"my/configs/{name}.jsonnet", ext_vars=variables)["model"]
    # Only what is missing is copied.
    Path("my/configs/mine.jsonnet").write_text("{}", encoding="utf-8")
    os.utime("my/configs/elmo.libsonnet", (0, 0))
    Path("my/configs/pretrain/small.jsonnet").unlink()
    assert run("elmo-configs '~/my/configs'") == f"1 {shown}"
    assert os.path.getmtime("my/configs/elmo.libsonnet") == 0
    assert read_files("my/configs") == {**configs, "mine.jsonnet": b"{}"}
