"""The comparison with bilm-tf, by a stand-in for it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from speed import bilm_tf
from speed.models import write_model

# It answers with the mean square of ours, or something else.
STAND_IN = """
import sys
for line in sys.stdin:
    print({}, flush=True)
"""


@pytest.fixture
def files(tmp_path: Path) -> Any:
    return {"small-512": write_model("tiny", str(tmp_path))}


def measure(files: Any, tmp_path: Path, monkeypatch: Any, answer: Any) -> Any:
    (tmp_path / "process.py").write_text(STAND_IN.format(answer))
    monkeypatch.setattr(bilm_tf, "_PROCESS", tmp_path / "process.py")
    return list(bilm_tf.measure(files, 1, bilm_tf.BilmTf("bilm-tf", sys.executable)))


def test_rows(files: Any, tmp_path: Path, monkeypatch: Any) -> None:
    squares = []
    monkeypatch.setattr(bilm_tf, "_check", lambda *each: squares.append(each))
    rows = measure(files, tmp_path, monkeypatch, 0.5)
    assert [row.workload for row in rows] == [
        "bilm-tf's embedding, 64 x 25, float32",
        "bilm-tf's embedding, 64 x 25, bfloat16",
        "bilm-tf's embedding, real lengths, float32",
        "bilm-tf's embedding, real lengths, bfloat16, words kept",
        "bilm-tf's training, 64 x 20, float32",
        "bilm-tf's training, 64 x 20, bfloat16",
    ]
    for row in rows:
        assert row.value == pytest.approx(row.words_per_second / row.baseline_words_per_second)
    ((expected, output),) = squares
    assert expected == 0.5
    assert output["elmo_representations"][0].shape == (64, 25, 32)


def test_other_numbers(files: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(AssertionError, match="bilm-tf's mean square is 123.0, ours 0."):
        measure(files, tmp_path, monkeypatch, 123.0)


def test_bilm_tf_fails(files: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(RuntimeError, match="(?s)bilm-tf has ended: .*'no_name' is not defined"):
        measure(files, tmp_path, monkeypatch, "no_name")


def test_without_bilm_tf(files: Any) -> None:
    rows = list(bilm_tf.measure(files, 1))
    assert len(rows) == 6 and all(row.value is None for row in rows)
    assert all(row.share for row in rows)
