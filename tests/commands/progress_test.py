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
    "elmo text layers --top --options-file imported/model.tar.gz": (
        ["unpacking model.tar.gz", "reading weights.th", "embedding", "joining"]
    ),
    "elmo-nearest see text --layers layers": ["reading"],
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
