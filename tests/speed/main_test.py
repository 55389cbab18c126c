import json
import sys

import pytest
import torch

import speed.__main__ as module
from speed import gpu
from speed.report import Row, line, take_turns
from tests.support.pretend_gpu import gpu_for_tests


@pytest.fixture(autouse=True)
def _all_threads(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)


@pytest.mark.nightly
def test_a_quick_look_at_every_workload(tmp_path, monkeypatch, capsys):
    """That everything runs, and that results are equal, which is checked before times are taken."""
    output = tmp_path / "rows.json"
    arguments = ["--sizes", "tiny", "--rounds", "1", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["speed", *arguments])
    module.main()
    rows = json.loads(output.read_text())["rows"]
    names = {row["workload"] for row in rows}
    assert {"random batches", "from text, words kept", "training step", "allennlp train"} <= names
    assert {"allennlp elmo", "start-up"} <= names
    assert all(row["value"] > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 9


def test_different_results_are_noticed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed", "--sizes", "tiny", "--only", "^random batches$"])
    original = module.embedding.Elmo.forward

    def wrong(self, *args):
        output = original(self, *args)
        output["elmo_representations"][0][0, 0, 0] += 1e-3
        return output

    monkeypatch.setattr(module.embedding.Elmo, "forward", wrong)
    with pytest.raises(AssertionError, match="random batches: results differ by"):
        module.main()


def test_rows():
    row = Row("a", "small", 2.345, 2, 1234.5, 99.9, "x")
    assert line(row) == "| a | small | 2.35 | 2 | 1,234 | 100 | x |"
    assert line(Row("b", "original", 1)) == "| b | original | 1.00 |  |  |  |  |"
    calls = []
    programs = {name: lambda item, name=name: calls.append((name, item)) for name in "ab"}
    assert take_turns(programs, [1, 2]).keys() == {"a", "b"}
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_on_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.gpu", "--sizes", "tiny", "--rounds", "1"])
    monkeypatch.setattr(gpu, "_BATCH_SIZES", (1, 3))
    with gpu_for_tests():
        gpu.main()
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines() if "| tiny" in row]
    expected = [[f"| {n}", precision] for precision in ("float32", "bfloat16") for n in (1, 3)]
    expected += [["| 64", "float32"], ["| 64", "bfloat16"]]
    assert [[row[0], row[2]] for row in rows] == expected
    assert [len(row) for row in rows] == [6, 6, 6, 6, 5, 5]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main()
    assert "torch finds no GPU" in capsys.readouterr().err
