"""What the commands show of their progress."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands import main

from allennlp_elmo_plugin import progress
from tests.support.bilm_tf import REFERENCE

# The language model and its softmax are read one after the other.
COMMANDS = {
    f"elmo-import {REFERENCE}/checkpoint new --vocab-file {REFERENCE}/data/vocab.txt": (
        ["reading model.ckpt-30"] * 2 + ["reading Adagrad"] * 2
    ),
    "elmo text layers --top --options-file new/model.tar.gz": (
        ["unpacking model.tar.gz", "reading weights.th", "embedding", "joining"]
    ),
    "elmo-nearest see text --layers layers": ["reading"],
    "elmo-nearest see text --layers layers --quiet": [],
}


def test_each_step_has_a_bar(run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_STEPS", 0.0)
    Path("text").write_text("the cat may see a letter\nno see\nsee no\n", encoding="utf-8")
    for line, expected in COMMANDS.items():
        monkeypatch.setattr(sys, "argv", ["allennlp", *line.split()])
        main()
        found = re.findall(r"^(.+): 100%\|[#\d]+\| .+\n", capsys.readouterr().err, re.MULTILINE)
        assert found == expected, line
