"""The program `allennlp-elmo-plugin`."""

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from allennlp import commands
from allennlp.common import plugins

from allennlp_elmo_plugin import __main__, __version__
from allennlp_elmo_plugin.__main__ import LOCAL_FILE, PLUGIN, global_file, main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The program runs in an empty folder; the user's folder is empty."""
    for name in ("home", "folder"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(plugins, "GLOBAL_PLUGINS_FILENAME", str(global_file()))
    monkeypatch.chdir(tmp_path / "folder")


def rows(capsys):
    lines = capsys.readouterr().out.splitlines()
    return {line[:16].strip(): line[16:] for line in lines}


def test_not_active(capsys):
    assert main([]) == 1
    printed = rows(capsys)
    assert printed["active ELMo"] == "AllenNLP's own, because allennlp_elmo_plugin isn't activated"
    assert printed["to change that"].startswith("allennlp-elmo-plugin --activate ")
    assert printed["plugins here"] == "none (in .allennlp_plugins)"
    assert printed["everywhere"] == f"none (in {global_file()})"
    assert str(LOCAL_FILE) == plugins.LOCAL_PLUGINS_FILENAME
    assert global_file().parts[-2:] == (".allennlp", "plugins")
    assert printed["allennlp"] == "2.10.1" and printed["torch"] and printed["device"]


@pytest.mark.parametrize("option", ["--activate-here", "--activate"])
@pytest.mark.parametrize(
    "before, after",
    [
        (None, "allennlp_elmo_plugin\n"),
        ("mine\nothers", "mine\nothers\nallennlp_elmo_plugin\n"),
        ("# allennlp_elmo_plugin\n", "# allennlp_elmo_plugin\nallennlp_elmo_plugin\n"),
        ("mine\n  allennlp_elmo_plugin ", "mine\n  allennlp_elmo_plugin "),
    ],
)
def test_activate(option, before, after, capsys):
    file = LOCAL_FILE if option == "--activate-here" else global_file()
    if before is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(before.encode())
    assert main([option]) == 0
    assert file.read_bytes() == after.encode()
    assert PLUGIN in plugins.discover_plugins()
    printed = rows(capsys)
    assert printed["active ELMo"] == f"allennlp_elmo_plugin {__version__}"
    assert "to change that" not in printed
    assert main([option]) == main([]) == 0
    assert file.read_bytes() == after.encode()


def test_what_the_console_lacks_is_escaped(tmp_path, monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "cp1252", write_through=True))
    monkeypatch.setenv("HOME", str(tmp_path / "Łódź"))
    main([])
    assert b"\\u0141\xf3d\\u017a" in printed.getvalue()


@pytest.mark.parametrize("version", [None, "2.9.0"])
def test_another_allennlp(version, monkeypatch, capsys):
    monkeypatch.setattr(__main__, "installed_version", lambda name: version)
    assert main(["--activate-here"]) == (1 if version is None else 0)
    printed = rows(capsys)
    for name in ("allennlp", "allennlp-models"):
        assert printed[name] == f"{version or 'not installed'} (needed: 2.10.1)"
    if version is None:
        assert printed["active ELMo"] == "none, because AllenNLP is not installed"
        command = (
            "in a clone of this package, pip install '.[allennlp]' && "
            "pip install --no-deps allennlp==2.10.1 allennlp-models==2.10.1"
        )
        assert printed["to change that"].endswith(command)
        with pytest.raises(SystemExit, match="2"):
            main(["train"])
        error = capsys.readouterr().err
        assert error.startswith("error: train is none of elmo, ") and error.endswith(f"{command}\n")


def test_a_file_that_cannot_be_written(capsys):
    LOCAL_FILE.mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(["--activate-here"])
    assert capsys.readouterr().err == "error: .allennlp_plugins: Is a directory\n"


@pytest.fixture
def start(subprocess_environment, monkeypatch):
    """Run `python -m allennlp_elmo_plugin` in a process."""
    monkeypatch.delitem(subprocess_environment, "PYTHONWARNINGS", raising=False)
    settings = {"env": subprocess_environment, "timeout": 300, "encoding": "utf-8"}
    program = [sys.executable, "-m", "allennlp_elmo_plugin"]
    return lambda *args: subprocess.run([*program, *args], **settings, capture_output=True)


def test_our_command_starts_without_task_models(start):
    Path("report.py").write_text("import sys\nprint('allennlp_models' in sys.modules)\n")
    process = start("elmo-vocab", "missing", "-o", "out", "--include-package", "report")
    assert (process.returncode, process.stdout) == (2, "False\n")
    assert process.stderr.startswith("error: missing does not exist")
    assert process.stderr.count("\n") == 1


def test_ctrl_c_while_torch_is_imported(monkeypatch, capsys):
    class Commands:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "allennlp_elmo_plugin.commands", Commands())
    with pytest.raises(SystemExit, match=str(128 + signal.SIGINT)):
        main(["elmo"])
    assert capsys.readouterr().err == "interrupted\n"


def test_names_itself(monkeypatch, capsys):
    monkeypatch.setattr(commands, "__version__", commands.__version__)
    sigterm = signal.getsignal(signal.SIGTERM)
    names = {"__main__.py": "python -m allennlp_elmo_plugin"}
    for program, name in {**names, "allennlp-elmo-plugin": "allennlp-elmo-plugin"}.items():
        for arguments, printed in (
            (["--version"], f"{name} {__version__} (AllenNLP 2.10.1)\n"),
            (["elmo", "a"], f"see `{name} elmo --help`\n"),
            (["elmo-benchmark", "a"], f"see `{name} elmo-benchmark --help`\n"),
        ):
            monkeypatch.setattr(sys, "argv", [program, *arguments])
            with pytest.raises(SystemExit):
                main()
            output = capsys.readouterr()
            assert (output.out + output.err).endswith(printed)
    assert signal.getsignal(signal.SIGTERM) is not sigterm  # as in the program `allennlp`
    signal.signal(signal.SIGTERM, sigterm)


def test_command_of_allennlp(start):
    Path("text").write_text("a X X O\nb X X O\n\nc X X O\n")
    indexers = {"elmo": {"type": "elmo_characters"}}
    reader = {"type": "conll2003", "token_indexers": indexers}  # of allennlp-models
    config = {"dataset_reader": reader, "train_data_path": "text", "data_loader": {"batch_size": 1}}
    Path("config.json").write_text(json.dumps(config))
    process = start("count-instances", "config.json")
    assert process.returncode == 0, process.stderr
    assert "contains 2 instances" in process.stdout
    assert "INFO - allennlp.common.params" in process.stderr
    assert "pkg_resources" not in process.stderr
