"""What the commands show of their progress."""

import re
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands import main

from allennlp_elmo_plugin import progress
from tests.support.bilm_tf import REFERENCE

# The language model and its softmax are read one after the other.
COMMANDS = {
    "elmo-vocab text -o vocab": ["counting words"],
    f"elmo-import {REFERENCE}/checkpoint imported --vocab-file {REFERENCE}/data/vocab.txt": (
        ["reading model.ckpt-30"] * 2 + ["reading Adagrad"] * 2
    ),
    "elmo-export imported/model.tar.gz exported": (
        ["unpacking model.tar.gz"]
        + ["reading weights.th"] * 2
        + ["writing weights.hdf5", "writing softmax.hdf5"]
    ),
    "elmo-export imported/model.tar.gz exported.zip --zip": (
        ["unpacking model.tar.gz"] + ["reading weights.th"] * 2 + ["writing model.hdf5"]
    ),
    "elmo text 0.hdf5 --top --options-file exported.zip": (
        ["unpacking exported.zip", "reading model.hdf5", "embedding", "joining"]
    ),
    "elmo-nearest see text --layers 0.hdf5": ["reading"],
}


@pytest.mark.parametrize("quiet", [False, True])
def test_commands(quiet: bool, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_STEPS", 0.0)
    Path("text").write_text("the cat may see a letter\nno see\nsee no\n", encoding="utf-8")
    for line, expected in COMMANDS.items():
        monkeypatch.setattr("sys.argv", ["allennlp", *line.split(), *(["-q"] if quiet else [])])
        main()
        shown = capsys.readouterr().err
        found = re.findall(r"^(.+): 100%\|[#\d]+\| .+\n", shown, re.MULTILINE)
        assert found == ([] if quiet else expected), line
        assert shown.count("\n") == len(found)
