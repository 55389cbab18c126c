"""`python -m allennlp_elmo_plugin`, in a folder without a file of plugins."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from allennlp import commands

from allennlp_elmo_plugin import __main__, __version__


@pytest.fixture
def start(tmp_path, subprocess_environment, monkeypatch):
    monkeypatch.delitem(subprocess_environment, "PYTHONWARNINGS", raising=False)
    settings: Any = {"cwd": tmp_path, "env": subprocess_environment, "timeout": 300}
    program = [sys.executable, "-m", "allennlp_elmo_plugin"]
    return lambda *given: subprocess.run(
        [*program, *given], **settings, capture_output=True, encoding="utf-8"
    )


def test_our_command_starts_without_task_models(tmp_path, start):
    report = "import sys\nprint('allennlp_models' in sys.modules)\n"
    (tmp_path / "report.py").write_text(report, encoding="utf-8")
    given = ["elmo-vocab", "missing", "-o", "out", "--include-package", "report"]
    process = start(*given)
    assert (process.returncode, process.stdout) == (2, "False\n")
    assert process.stderr.startswith("error: missing does not exist")
    assert process.stderr.count("\n") == 1


def test_names_itself(monkeypatch, capsys):
    monkeypatch.setattr(commands, "__version__", commands.__version__)
    sigterm = signal.getsignal(signal.SIGTERM)
    for program, name in (
        ("__main__.py", "python -m allennlp_elmo_plugin"),
        ("allennlp-elmo-plugin", "allennlp-elmo-plugin"),
    ):
        for given, printed in (
            (["--version"], f"{name} {__version__} (AllenNLP 2.10.1)\n"),
            (["elmo", "a"], f"see `{name} elmo --help`\n"),
            (["elmo-benchmark", "a"], f"see `{name} elmo-benchmark --help`\n"),
        ):
            monkeypatch.setattr(sys, "argv", [program, *given])
            with pytest.raises(SystemExit):
                __main__.main()
            output = capsys.readouterr()
            assert (output.out + output.err).endswith(printed)
    assert signal.getsignal(signal.SIGTERM) is not sigterm  # as in the program `allennlp`
    signal.signal(signal.SIGTERM, sigterm)


def test_command_of_allennlp(tmp_path, start):
    (tmp_path / "text").write_text("a X X O\nb X X O\n\nc X X O\n", encoding="utf-8")
    indexers = {"elmo": {"type": "elmo_characters"}}
    reader = {"type": "conll2003", "token_indexers": indexers}  # of allennlp-models
    config = {"dataset_reader": reader, "train_data_path": "text", "data_loader": {"batch_size": 1}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    process = start("count-instances", "config.json")
    assert process.returncode == 0, process.stderr
    assert "contains 2 instances" in process.stdout
    assert "INFO - allennlp.common.params" in process.stderr
    assert "pkg_resources" not in process.stderr
