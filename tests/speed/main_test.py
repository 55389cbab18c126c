import json
import sys

import pytest

import speed.__main__ as module
from speed import gpu
from tests.support.pretend_gpu import gpu_for_tests


@pytest.mark.nightly
def test_a_quick_look_at_every_workload(tmp_path, monkeypatch, capsys):
    """That everything runs, and that results are equal, which is checked before times are taken."""
    output = tmp_path / "rows.json"
    arguments = f"--sizes tiny --rounds 1 --threads 1 --output {output}"
    monkeypatch.setattr(sys, "argv", ["speed", *arguments.split()])
    module.main()
    rows = json.loads(output.read_text())["rows"]
    names = {row["workload"] for row in rows}
    assert {"random batches", "training step", "allennlp train", "allennlp elmo"} <= names
    assert sum("ONNX Runtime" in name for name in names) == 4
    assert all(row["value"] > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 9


@pytest.mark.nightly
def test_on_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.gpu", "--sizes", "tiny", "--rounds", "1"])
    monkeypatch.setattr(gpu, "BATCH_SIZES", (1, 3))
    monkeypatch.setattr(gpu, "FILE_SENTENCES", 3)
    with gpu_for_tests():
        gpu.main()
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines() if "| tiny" in row]
    expected = [[f"| {n}", precision] for precision in ("float32", "bfloat16") for n in (1, 3)]
    expected += [["| 64", "float32"], ["| 64", "bfloat16"]]
    expected += [
        [f"| {name}", p] for p in ("float32", "bfloat16") for name in ("top", "all", "pooled")
    ]
    assert [[row[0], row[2]] for row in rows] == expected
    assert [len(row) for row in rows] == [6, 6, 6, 6, 5, 5, *[4] * 6]
