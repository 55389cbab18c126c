import sys

import pytest
import torch

from speed import floor, gpu
from tests.support.pretend_gpu import gpu_for_tests


def test_a_quick_look(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.gpu", "--sizes", "tiny", "--rounds", "1"])
    monkeypatch.setattr(gpu, "_BATCH_SIZES", (1, 3))
    monkeypatch.setattr(floor, "_REPETITIONS", 1)
    with gpu_for_tests():
        gpu.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("GPU: ")
    rows = [line.split(" | ") for line in lines[3:]]
    assert [row[:3] for row in rows] == [
        [f"| {n}", "tiny", precision] for precision in ("float32", "bfloat16") for n in (1, 3)
    ]
    assert all(len(row) == 7 and row[-1].endswith("% |") for row in rows)


def test_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main()
    assert "torch finds no GPU" in capsys.readouterr().err
