"""
Commands that are stopped at random moments by SIGKILL, SIGINT or SIGTERM, once or several times,
and then repeated with the same arguments: what they leave in the end is what an undisturbed run
leaves. A file from which they continue, with a random byte changed, is refused or does no harm.

`RANDOM_KILLS=200 python -m pytest -m nightly tests/random_kills_test.py` stops each so often.
"""

import os
import random
import signal
import sys
import time

import numpy as np
import pytest
from allennlp.commands import main

from tests.support import elmo_train_runs
from tests.support.testing import fork, read_arrays, write_random_elmo
from tests.support.training_runs import metrics, write_config, write_data

pytestmark = pytest.mark.nightly


def of_elmo_train(run):
    names = ("weights.hdf5", "softmax.hdf5", "adagrad.hdf5", "options.json", "vocab.txt")
    return elmo_train_runs.metrics(run), [(run / name).read_bytes() for name in names]


def of_training(run):
    return metrics(run), (run / "best.th").read_bytes(), *of_elmo_train(run)


N_KILLS = int(os.environ.get("RANDOM_KILLS", 10))
# What is run, what counts of its output, and the files from which it continues
EMBED = "elmo --all --resume --options-file options.json shards/0.txt"
TRAIN = "elmo-train shards --validation heldout.txt --vocab vocabulary --size size.json -o"
COMMANDS = {
    "train": ("train config.json -s", of_training, "{}/checkpoint.pt"),
    "elmo-train": (TRAIN, of_elmo_train, "{}/checkpoint.pt"),
    "embed": (EMBED, read_arrays, "{}.parts/0????"),
}


def start(name, output):
    """Start a command as its user repeats it, and return the number of its process."""
    sys.argv = ["allennlp", *COMMANDS[name][0].split(), str(output)]
    if name == "elmo-train" and (output / "training.json").exists():
        sys.argv.append("--resume")
    if name == "train" and output.exists():
        sys.argv.append("--recover" if (output / "config.json").exists() else "--force")
    return fork(end_by_ctrl_c, wait=False)


def end_by_ctrl_c():
    """Run the program; Ctrl-C may come before its handlers are there."""
    try:
        main()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def change_a_byte(path, numbers):
    content = bytearray(path.read_bytes())
    content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("name", COMMANDS)
def test_random_kills(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    folder = write_data(tmp_path)
    changes = {"train_data_path": str(folder / "heldout.txt")}
    elmo_train_runs.write_size(write_config(folder, folder, changes), folder / "size.json")
    write_random_elmo(folder)
    begin = time.monotonic()
    assert os.waitpid(start(name, folder / "undisturbed"), 0)[1] == 0
    seconds = time.monotonic() - begin
    result = COMMANDS[name][1]
    numbers = random.Random(os.environ.get("RANDOM_KILLS_SEED", "0") + name)
    n_stops = n_rounds = n_changed = n_refused = 0
    while n_stops < N_KILLS:
        output = folder / f"output{n_rounds}"
        n_rounds += 1
        for _ in range(numbers.choice([1, 1, 2, 3])):
            by = numbers.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
            process = start(name, output)
            time.sleep(numbers.uniform(0, seconds))
            os.kill(process, by)
            status = os.waitpid(process, 0)[1]
            assert status in (0, by)
            n_stops += status != 0
        if files := sorted(tmp_path.glob(COMMANDS[name][2].format(output.name))):
            path = numbers.choice(files)
            sound = path.read_bytes()
            change_a_byte(path, numbers)
            capfd.readouterr()
            n_changed += 1
            if os.waitpid(start(name, output), 0)[1] != 0:
                n_refused += 1
                assert f"{path.name}: damaged" in capfd.readouterr().err
                path.write_bytes(sound)
        assert os.waitpid(start(name, output), 0)[1] == 0
        np.testing.assert_equal(result(output), result(folder / "undisturbed"))
    with capfd.disabled():
        counts = f"{n_stops} stops, {n_changed} changed bytes, {n_refused} of them refused"
        print(f"\n{name}: {counts}")
