"""`allennlp elmo-nearest`; tests/embedding/nearest_test.py has what it computes."""

import re
from pathlib import Path

import pytest

from tests.embedding.nearest_test import TEXT


@pytest.fixture(autouse=True)
def text(run):
    lines = [" ".join(words) + "\n" for words in TEXT]
    for name, part in {"text": lines, "1": lines[:3], "2": lines[3:]}.items():
        Path(name).write_text("".join(part), encoding="utf-8")


def test_without_a_query(run, caplog):
    """It needs nothing but a word and a text, and there is nothing to warn of."""
    printed = run("elmo-nearest bank 1 2 -n 1")
    for table in printed.rstrip().split("\n\n"):
        query, row = table.split("\n")
        assert re.fullmatch(r"  query  .* \[bank\] .*", query)
        assert -1 < float(row[:7]) < 1 and " [bank] " in row
    assert not caplog.records


def test_with_queries(run):
    printed = run("elmo-nearest bank 1 2 --query 'The bank of the river .' --query 'A bank lent'")
    for table, query in zip(printed.split("\n\n"), ("The [bank] of the river .", "A [bank] lent")):
        first, *rows = table.strip("\n").split("\n")
        assert first.endswith(query) and len(rows) == 5


def test_layers_of_a_file_are_those_of_the_model(run, monkeypatch):
    run("elmo text layers.hdf5 --all --options-file tiny")
    line = "elmo-nearest bank text -n 3 --max-occurrences 7"
    expected = run(line)
    monkeypatch.delattr("allennlp_elmo_plugin.commands.command.embedder")
    assert run(f"{line} --layers layers.hdf5") == expected
    assert expected.count("\n") == 2 * (1 + 3) + 1
