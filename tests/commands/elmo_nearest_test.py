"""The command. tests/embedding/nearest_test.py has what it computes."""

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands import main

from tests.embedding.nearest_test import TEXT
from tests.support.testing import refused


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    lines = [" ".join(words) + "\n" for words in TEXT]
    Path("text/1.txt").write_text("".join(lines[:3]), encoding="utf-8")
    Path("text/2.txt.gz").write_bytes(gzip.compress("".join(lines[3:]).encode()))


def test_without_a_query(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It needs nothing but a word and a text, and there is nothing to warn of."""
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-nearest", "bank", "text", "-n", "1"])
    main()
    first, second = capsys.readouterr().out.split("\n\n")
    for table in (first, second.rstrip()):
        query, row = table.split("\n")
        assert query.startswith("  query  ") and " [bank] " in query
        assert -1 < float(row[:7]) < 1 and " [bank] " in row
    assert not caplog.records


@pytest.mark.parametrize("flag", ["--all", "--top"])
def test_layers_of_a_file(flag: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """What is printed is the same as with the model."""
    text = "\n".join(map(" ".join, TEXT)) + "\n"
    Path("text.txt").write_text(text, encoding="utf-8")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
        main()
        return capsys.readouterr().out

    run("elmo", "text.txt", "layers.hdf5", flag)
    nearest = ["elmo-nearest", "bank", "text.txt", "-n", "9"]
    expected = run(*nearest)
    monkeypatch.delattr("allennlp_elmo_plugin.commands.elmo_nearest.ElmoEmbedder")
    assert run(*nearest, "--layers", "layers.hdf5") == expected

    Path("text.txt").write_text("another text of the bank\n" + text, encoding="utf-8")
    message = refused(capsys, *nearest, "--layers", "layers.hdf5")
    assert "layers.hdf5: key 0 doesn't have the 5 words of line 1 of the text" in message


def test_with_queries(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    arguments = ["--query", "The bank of the river .", "--query", "A bank lent him money ."]
    monkeypatch.setattr(
        sys, "argv", ["allennlp", "elmo-nearest", "bank", "text/1.txt", "text/2.txt.gz", *arguments]
    )
    main()
    found = capsys.readouterr().out
    assert "The [bank] of the river .\n" in found and "A [bank] lent him money .\n" in found
    assert found.count("\n") == 2 * 6 + 1


def test_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def error(*arguments: str) -> str:
        argv = ["allennlp", "elmo-nearest", *arguments, "--options-file", "tiny"]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as raised:
            main()
        assert raised.value.code == 2
        *_, line = capsys.readouterr().err.split("\r")  # after the progress bar
        assert line.startswith("error: ")
        return line

    assert "'shore' is not in the text of" in error("shore", "text")
    assert "nowhere does not exist" in error("bank", "nowhere")
    assert "'bank' is not in the query" in error("bank", "text", "--query", "the Bank")
    assert "--cuda-device is 99" in error("bank", "text", "--cuda-device", "99")
    assert "omit query and model" in error("bank", "text", "--layers", "layers.hdf5")
