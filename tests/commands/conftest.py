"""Commands in the process of the tests."""

import shlex
import sys

import pytest
from allennlp.commands import main
from allennlp.common import logging as common_logging


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `allennlp` with a line of arguments, in an empty folder; return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)

    def run(line, *arguments):
        argv = ["allennlp", *shlex.split(line), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        main()
        return capsys.readouterr().out

    return run
