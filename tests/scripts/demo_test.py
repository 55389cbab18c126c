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


@pytest.mark.nightly
def test_demo(
    tmp_path: Path, repository_root: Path, subprocess_environment: Dict[str, str]
) -> None:
    paths = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", str(repository_root / "scripts" / "demo.sh"), *arguments],
            cwd=tmp_path,
            env={**subprocess_environment, "PATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    output = tmp_path / "out"
    (output / "model").mkdir(parents=True)
    (output / "model" / "stale").touch()
    refused = run("out")
    assert refused.returncode == 1 and "not from an earlier demo" in refused.stdout
    assert [path.name for path in output.iterdir()] == ["model"]
    (output / ".made-by-elmo-demo").touch()
    (output / "notes.txt").write_text("mine", encoding="utf-8")

    result = run("out", "-o", json.dumps(TRAIN_LITTLE))

    assert result.returncode == 0 and "Traceback" not in result.stdout, result.stdout
    found = re.search(
        r"unigram model +([\d.]+) +([\d.]+)\s+bidirectional LSTM +([\d.]+) +([\d.]+)",
        result.stdout,
    )
    assert found is not None, result.stdout
    # Both directions predict the same words, and as many sentence ends.
    assert found[1] == found[2] and 100 < float(found[1]) < 600
    metrics = json.loads((output / "heldout.json").read_text(encoding="utf-8"))
    for direction, figure in zip(("forward", "backward"), found.groups()[2:]):
        assert float(figure) == pytest.approx(metrics[f"{direction}_perplexity"], abs=0.1)
    assert len(re.findall(r"^ +-?\d\.\d\d .*\[set\]", result.stdout, re.MULTILINE)) == 10
    with h5py.File(output / "layers.hdf5", "r") as layers:
        assert layers["0"].shape[1] == 16
    # What is not the script's own stays, what is starts anew.
    assert (output / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert not (output / "model" / "stale").exists()
