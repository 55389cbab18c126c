"""The demo as a user runs it, with little training."""

import os
import re
import subprocess
import sys

import h5py
import pytest


@pytest.mark.nightly
def test_demo(tmp_path, repository_root, subprocess_environment):
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**subprocess_environment, "PATH": path}
    script = f"{repository_root}/scripts/demo.sh"
    command = ["bash", script, str(tmp_path), "--num-epochs", "1", "--batch-size", "64"]
    (tmp_path / "notes.txt").touch()
    refused = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert refused.returncode == 1 and "not from an earlier demo" in refused.stderr
    (tmp_path / ".made-by-elmo-demo").touch()
    printed = subprocess.check_output(command, env=environment, encoding="utf-8")
    match = re.search(r"unigram model +([\d.]+).*\n +bidirectional LSTM +([\d.]+) ", printed)
    assert match is not None and 100 < float(match[1]) < 600
    assert printed.count("\nepoch ") == 1  # a log file
    assert "%|" not in printed
    table = (tmp_path / "heldout.txt").read_text(encoding="utf-8")
    (perplexity,) = re.findall(r"^forward_perplexity +([\d.,]+)", table, re.MULTILINE)
    assert float(match[2]) == pytest.approx(float(perplexity.replace(",", "")), abs=0.1)
    assert len(re.findall(r"^ +-?\d\.\d\d .*\[set\]", printed, re.MULTILINE)) == 10
    with h5py.File(tmp_path / "layers.hdf5", "r") as layers:
        assert layers["0"].shape[1] == 128
