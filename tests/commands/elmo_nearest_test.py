"""The command. tests/embedding/nearest_test.py has what it computes."""

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands import main

from tests.embedding.nearest_test import TEXT


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    lines = [" ".join(words) + "\n" for words in TEXT]
    Path("text/1.txt").write_text("".join(lines[:3]), encoding="utf-8")
    Path("text/2.txt.gz").write_bytes(gzip.compress("".join(lines[3:]).encode()))


def test_without_a_query(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """It needs nothing but a word and a text."""
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-nearest", "bank", "text", "-n", "1"])
    main()
    first, second = capsys.readouterr().out.split("\n\n")
    for table in (first, second.rstrip()):
        query, row = table.split("\n")
        assert query.startswith("  query  ") and " [bank] " in query
        assert -1 < float(row[:7]) < 1 and " [bank] " in row


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
