"""Commands in the process of the tests."""

import shlex
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.support.testing import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `allennlp` with a line of arguments, in an empty folder; return what it prints."""
    monkeypatch.chdir(tmp_path)
    # The numbers are compared with those of the CPU.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if find_spec("allennlp"):
        monkeypatch.setattr("allennlp.common.logging.FILE_FRIENDLY_LOGGING", False)

    def run(line, *arguments):
        argv = ["allennlp", *shlex.split(line), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        main()
        return capsys.readouterr().out

    return run
