"""The demo as a user runs it, but for a few steps of training."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import h5py
import pytest

TRAIN_LITTLE = {
    "trainer.num_epochs": 1,
    "dataset_reader.max_instances": 32,
    "model.options.lstm.dim": 16,
    "model.options.lstm.projection_dim": 8,
}


@pytest.fixture
def run(repository_root: Path, subprocess_environment: Dict[str, str], tmp_path: Path):
    """Runs the script from another folder."""
    scripts = os.path.dirname(sys.executable)
    environment = {
        **subprocess_environment,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
    }

    def run_demo(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", str(repository_root / "scripts" / "demo.sh"), *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    return run_demo


def test_demo(run, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / ".made-by-elmo-demo").touch()
    (output / "notes.txt").write_text("mine", encoding="utf-8")
    (output / "model").mkdir()
    (output / "model" / "stale").touch()

    result = run("out", "-o", json.dumps(TRAIN_LITTLE))

    assert result.returncode == 0, result.stdout
    assert "Traceback" not in result.stdout
    found = re.search(
        r"unigram model +([\d.]+) +([\d.]+)\s+bidirectional LSTM +([\d.]+) +([\d.]+)",
        result.stdout,
    )
    assert found is not None, result.stdout
    unigram = [float(found[1]), float(found[2])]
    # Both directions predict the same words, and as many sentence ends.
    assert unigram[0] == unigram[1] and 100 < unigram[0] < 600
    metrics = json.loads((output / "heldout.json").read_text(encoding="utf-8"))
    assert float(found[3]) == pytest.approx(metrics["forward_perplexity"], abs=0.1)
    assert float(found[4]) == pytest.approx(metrics["backward_perplexity"], abs=0.1)
    assert len(re.findall(r"^ +-?\d\.\d\d .*\[set\]", result.stdout, re.MULTILINE)) == 10
    with h5py.File(output / "layers.hdf5", "r") as layers:
        assert layers["0"].shape[1] == 16
    # What is not the script's own stays, what is starts anew.
    assert (output / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert not (output / "model" / "stale").exists()


def test_foreign_folder_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "out" / "model").mkdir(parents=True)
    result = run("out")
    assert result.returncode == 1
    assert "not from an earlier demo" in result.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]
