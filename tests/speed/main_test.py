import json
import sys

import pytest

import speed.__main__ as module
from speed.report import Row, table


def test_a_quick_look_at_every_workload(tmp_path, monkeypatch, capsys):
    """That everything runs, and that results are equal, which is checked before times are taken."""
    output = tmp_path / "rows.json"
    arguments = ["--sizes", "tiny", "--rounds", "1", "--rows-only", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["speed", *arguments])
    monkeypatch.setattr(module.torch, "set_num_threads", lambda _: None)
    module.main()
    rows = json.loads(output.read_text())["rows"]
    names = {row["workload"] for row in rows}
    assert {"random batches", "from text, words kept", "training step", "allennlp train"} <= names
    assert {"allennlp elmo", "start-up"} <= names
    assert all(row["workload"] == "start-up" or row["words_per_second"] > 0 for row in rows)
    with_floor = {row["workload"] for row in rows if row["floor_words_per_second"]}
    assert {"random batches", "one sentence at a time, int8", "training step"} <= with_floor
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 2


def test_different_results_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed", "--sizes", "tiny", "--only", "^random batches$"])
    monkeypatch.setattr(module.torch, "set_num_threads", lambda _: None)
    original = module.embedding.Elmo.forward

    def wrong(self, *args):
        output = original(self, *args)
        output["elmo_representations"][0][0, 0, 0] += 1e-3
        return output

    monkeypatch.setattr(module.embedding.Elmo, "forward", wrong)
    with pytest.raises(AssertionError, match="random batches: results differ by"):
        module.main()


def test_table():
    rows = [
        Row("a", "small", 2.345, 2, 1234.5, 99.9, 2469.0, 0.85, "x"),
        Row("b", "original"),
    ]
    assert table(rows).splitlines()[2:] == [
        "| a | small | 2.35 | 2 | 1,234 | 100 | 50% | 85% | x |",
        "| b | original |  |  |  |  |  |  |  |",
    ]
