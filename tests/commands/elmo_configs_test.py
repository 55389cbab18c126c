import os
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.commands import main
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS, copy_configs


def contents(folder: Path) -> Dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-configs", "my/configs"])
    main()
    assert contents(tmp_path / "my/configs") == contents(CONFIGS)
    assert capsys.readouterr().out == (
        f"{len(contents(CONFIGS))} files copied to my/configs, which now has benchmark, chunking, "
        "constituency, coref, data.libsonnet, elmo.libsonnet, imdb, ner, pretrain, snli, squad, "
        "srl, sst\n"
    )


def test_copies_import_each_other(tmp_path: Path) -> None:
    copy_configs(tmp_path)
    data = {f"{part}_DATA_PATH": "text" for part in ("TRAIN", "VALIDATION", "TEST")}
    variables = {
        "ELMO": "tiny",
        "VOCABULARY_PATH": "vocabulary",
        **data,
        **{f"NER_{name}": value for name, value in data.items()},
    }
    for name in ("pretrain/small", "ner/ner_elmo", "benchmark/ner_elmo"):
        assert Params.from_file(tmp_path / f"{name}.jsonnet", ext_vars=variables)["model"]


def test_only_what_is_missing_is_copied(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonnet").write_text("{}", encoding="utf-8")
    copy_configs(tmp_path)
    os.utime(tmp_path / "elmo.libsonnet", (0, 0))
    (tmp_path / "pretrain" / "small.jsonnet").unlink()
    assert copy_configs(tmp_path) == [Path("pretrain/small.jsonnet")]
    assert (tmp_path / "elmo.libsonnet").stat().st_mtime == 0
    assert contents(tmp_path) == {**contents(CONFIGS), "mine.jsonnet": b"{}"}


def test_changed_files_are_kept_and_nothing_is_copied(tmp_path: Path) -> None:
    (tmp_path / "ner").mkdir()
    (tmp_path / "ner" / "ner.jsonnet").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"nothing was copied: ner/ner.jsonnet\. Rename"):
        copy_configs(tmp_path)
    assert contents(tmp_path) == {"ner/ner.jsonnet": b"{}"}


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "in" / "it"):
        with pytest.raises(ConfigurationError, match="file is a file, not a folder; choose"):
            copy_configs(folder)
