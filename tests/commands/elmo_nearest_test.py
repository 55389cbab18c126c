"""`allennlp elmo-nearest`; tests/embedding/nearest_test.py has what it computes."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from tests.embedding.nearest_test import TEXT
from tests.support.testing import refused


@pytest.fixture(autouse=True)
def text(run: Any) -> None:
    Path("text").mkdir()
    lines = [" ".join(words) + "\n" for words in TEXT]
    Path("text.txt").write_text("".join(lines), encoding="utf-8")
    Path("text/1.txt").write_text("".join(lines[:3]), encoding="utf-8")
    Path("text/2.txt.gz").write_bytes(gzip.compress("".join(lines[3:]).encode()))


def test_without_a_query(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It needs nothing but a word and a text, and there is nothing to warn of."""
    printed = run("elmo-nearest bank text -n 1")
    for table in printed.rstrip().split("\n\n"):
        query, row = table.split("\n")
        assert re.fullmatch(r"  query  .* \[bank\] .*", query)
        assert -1 < float(row[:7]) < 1 and " [bank] " in row
    assert not caplog.records


def test_with_queries(run: Any) -> None:
    queries = "--query 'The bank of the river .' --query 'A bank lent him money .'"
    tables = run(f"elmo-nearest bank text/1.txt text/2.txt.gz {queries}").split("\n\n")
    for table, query in zip(tables, ("The [bank] of the river .", "A [bank] lent him money .")):
        first, *rows = table.strip("\n").split("\n")
        assert first.endswith(query) and len(rows) == 5
        similarities = [float(row[:7]) for row in rows]
        assert similarities == sorted(similarities, reverse=True)


def test_layers_of_a_file(run: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is the same as with the model."""
    run("elmo text.txt layers.hdf5 --all --options-file tiny")
    nearest = "elmo-nearest bank text.txt -n 3 --max-occurrences 7"
    expected = run(nearest)
    monkeypatch.delattr("allennlp_elmo_plugin.commands.elmo_nearest.embedder")
    assert run(f"{nearest} --layers layers.hdf5") == expected
    assert expected.count("\n") == 2 * (1 + 3) + 1
    text = Path("text.txt").read_text(encoding="utf-8")
    Path("text.txt").write_text(f"another text of the bank\n{text}", encoding="utf-8")
    message = refused(capsys, *nearest.split(), "--layers", "layers.hdf5", "-q")
    assert "layers.hdf5: key 0 doesn't have the 5 words of line 1 of the text" in message
