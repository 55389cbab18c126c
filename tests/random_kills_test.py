"""
Commands that are killed (SIGKILL) at random moments, once or several times, and then repeated with
the same arguments: what they leave in the end is what an undisturbed run leaves.

`RANDOM_KILLS=200 python -m pytest -m nightly tests/random_kills_test.py` kills each so often.
"""

import os
import random
import signal
import sys
import time

import numpy as np
import pytest
import torch
from allennlp.commands import main

from tests.support import elmo_train_runs
from tests.support.testing import fork, read_arrays, write_random_elmo
from tests.support.training_runs import metrics, write_config, write_data

pytestmark = pytest.mark.nightly


def of_elmo_train(run):
    return elmo_train_runs.metrics(run), read_arrays(run / "weights.hdf5")


def of_training(run):
    weights = torch.load(run / "best.th")
    return metrics(run), {name: tensor.numpy() for name, tensor in weights.items()}


N_KILLS = int(os.environ.get("RANDOM_KILLS", 2))
# What is run, and what counts of its output
EMBED = "elmo --all --resume --options-file options.json shards/0.txt"
TRAIN = "elmo-train shards --validation heldout.txt --vocab vocabulary --size size.json -o"
COMMANDS = {
    "train": ("train config.json -s", of_training),
    "elmo-train": (TRAIN, of_elmo_train),
    "embed": (EMBED, read_arrays),
}


def start(name, output):
    """Start a command as its user repeats it, and return the number of its process."""
    sys.argv = ["allennlp", *COMMANDS[name][0].split(), str(output)]
    if name == "elmo-train" and (output / "training.json").exists():
        sys.argv.append("--resume")
    if name == "train" and output.exists():
        sys.argv.append("--recover" if (output / "config.json").exists() else "--force")
    return fork(main, wait=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_random_kills(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    folder = write_data(tmp_path)
    changes = {"train_data_path": str(folder / "heldout.txt"), "trainer.callbacks": []}
    elmo_train_runs.write_size(write_config(folder, folder, changes), folder / "size.json")
    write_random_elmo(folder)
    begin = time.monotonic()
    assert os.waitpid(start(name, folder / "undisturbed"), 0)[1] == 0
    seconds = time.monotonic() - begin
    result = COMMANDS[name][1]
    numbers = random.Random(os.environ.get("RANDOM_KILLS_SEED", "0") + name)
    n_kills = n_rounds = 0
    while n_kills < N_KILLS:
        output = folder / f"output{n_rounds}"
        n_rounds += 1
        for _ in range(numbers.choice([1, 1, 2, 3])):
            process = start(name, output)
            time.sleep(numbers.uniform(0, seconds))
            os.kill(process, signal.SIGKILL)
            status = os.waitpid(process, 0)[1]
            assert status in (0, signal.SIGKILL)
            n_kills += status != 0
        assert os.waitpid(start(name, output), 0)[1] == 0
        np.testing.assert_equal(result(output), result(folder / "undisturbed"))
