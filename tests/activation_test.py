"""The program `allennlp-elmo-plugin`."""

import pytest
from allennlp.common import plugins

import allennlp_elmo_plugin
from allennlp_elmo_plugin import activation
from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.activation import LOCAL_FILE, PLUGIN, global_file


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
    assert printed["active ELMo"] == "AllenNLP's own, because no file names allennlp_elmo_plugin"
    assert printed["to change that"].startswith("allennlp-elmo-plugin --activate ")
    assert printed["plugins here"] == ".allennlp_plugins: names no plugin"
    assert printed["everywhere"] == f"{global_file()}: names no plugin"
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
    assert printed["active ELMo"] == f"allennlp_elmo_plugin {allennlp_elmo_plugin.__version__}"
    assert "to change that" not in printed
    assert main([option]) == main([]) == 0
    assert file.read_bytes() == after.encode()


@pytest.mark.parametrize("version", [None, "2.9.0"])
def test_another_allennlp(version, monkeypatch, capsys):
    monkeypatch.setattr(activation, "_installed_version", lambda name: version)
    assert main(["--activate-here"]) == (1 if version is None else 0)
    printed = rows(capsys)
    for name in ("allennlp", "allennlp-models"):
        assert printed[name] == f"{version or 'not installed'} (needed: 2.10.1)"
    if version is None:
        assert printed["active ELMo"] == "none, because AllenNLP is not installed"
        command = "pip install --no-deps allennlp==2.10.1 allennlp-models==2.10.1"
        assert printed["to change that"].endswith(command)


def test_a_file_that_cannot_be_written(capsys):
    LOCAL_FILE.mkdir()
    assert main(["--activate-here"]) == 2
    assert capsys.readouterr().err == "error: .allennlp_plugins: Is a directory\n"
