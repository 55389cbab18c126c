"""What the commands show of their progress."""

import re
import sys
from pathlib import Path
from typing import Any, List

import pytest
from allennlp.commands import main
from allennlp.common import logging as common_logging

from allennlp_elmo_plugin import progress
from tests.support.bilm_tf import REFERENCE

COMMANDS = [
    ("elmo-vocab text -o vocab", ["counting words"]),
    (
        f"elmo-import {REFERENCE}/checkpoint imported --vocab-file {REFERENCE}/data/vocab.txt",
        # The language model and its softmax are read one after the other.
        ["reading model.ckpt-30"] * 2 + ["packing model.tar.gz"] + ["reading Adagrad"] * 2,
    ),
    (
        "elmo-export imported/model.tar.gz exported",
        ["unpacking model.tar.gz"]
        # The language model and its softmax are read one after the other.
        + ["reading weights.th"] * 2
        + ["writing weights.hdf5", "writing softmax.hdf5"],
    ),
    (
        "elmo-export imported/model.tar.gz exported.zip --zip",
        ["unpacking model.tar.gz"] + ["reading weights.th"] * 2 + ["writing model.hdf5"],
    ),
    (
        "elmo text 0.hdf5 --top --options-file exported.zip",
        ["unpacking exported.zip", "reading model.hdf5", "embedding", "joining"],
    ),
]


@pytest.mark.parametrize("quiet", [False, True])
def test_commands(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_STEPS", 0.0)
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("the cat sees a letter\nno\n", encoding="utf-8")
    for line, expected in COMMANDS:
        option = ["--quiet"] if quiet else []
        monkeypatch.setattr(sys, "argv", ["allennlp", *line.split(), *option])
        main()
        printed, shown = capsys.readouterr()
        assert "ritten to" in printed
        found: List[str] = re.findall(r"^(.+): 100%\|#+\| .+\n", shown, re.MULTILINE)
        assert found == ([] if quiet else expected), line
        assert shown.count("\n") == len(found)
