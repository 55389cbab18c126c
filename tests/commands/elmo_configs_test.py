"""`allennlp elmo-configs`."""

import os
from pathlib import Path

import pytest

from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from tests.support.testing import read_files


def test_what_is_missing_is_copied_and_can_be_used(run, monkeypatch):
    configs = read_files(CONFIGS)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, os.getcwd())
    shown = f"files copied to {Path('~/my/configs')}; what was there before is unchanged\n"
    assert run("elmo-configs '~/my/configs'") == f"{len(configs)} {shown}"
    assert read_files("my/configs") == configs
    data = {f"{split}_DATA_PATH": "text" for split in ("TRAIN", "VALIDATION", "TEST")}
    variables = {"ELMO": "tiny", **data, **{f"NER_{key}": "text" for key in data}}
    Params = pytest.importorskip("allennlp.common").Params
    assert Params.from_file("my/configs/benchmark/ner_elmo.jsonnet", ext_vars=variables)["model"]
    Path("my/configs/elmo.libsonnet").write_text("mine", encoding="utf-8")
    Path("my/configs/pretrain/small.jsonnet").unlink()
    assert run("elmo-configs '~/my/configs'") == f"1 {shown}"
    assert read_files("my/configs") == {**configs, "elmo.libsonnet": b"mine"}
