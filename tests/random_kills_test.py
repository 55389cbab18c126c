"""Commands that are killed (SIGKILL) at random moments, once or several times, and then repeated
with the same arguments: what they leave in the end is what an undisturbed run leaves.

`RANDOM_KILLS=200 python -m pytest tests/random_kills_test.py` spreads so many over the commands.
"""

import multiprocessing
import os
import random
import re
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import torch
from allennlp.commands import main

from tests.support.task_data import write_task_data
from tests.support.testing import read_arrays, write_random_elmo
from tests.support.training_runs import metrics, write_config, write_data

pytestmark = pytest.mark.nightly

N_KILLS = int(os.environ.get("RANDOM_KILLS", 6))
COMMANDS = {
    "vocabulary": "elmo-vocab {0}/shards --output {1}/vocab --force",
    "train": "train {0}/config.json -s {1}/run",
    "export": "elmo-export {0}/run/model.tar.gz {1}/elmo --force",
    "import": "elmo-import {0}/elmo {1}/imported --force --vocab-file {0}/vocabulary/vocab.txt",
    "embed": "elmo {0}/shards/0.txt {1}/layers.hdf5 --all --resume"
    " --options-file {0}/elmo/options.json --weight-file {0}/elmo/weights.hdf5",
    "benchmark": "elmo-benchmark --tasks sst5 --elmo {0}/elmo --seeds 1 --data {0}/data"
    ' --output {1}/out -o {{"trainer.num_epochs":1}}',
}

# A process that has imported everything, and has children that begin at once.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.all_plugins", __name__])


def run_command(arguments: List[str], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.setsid()
    torch.set_num_threads(1)
    sys.argv = ["allennlp", *arguments]
    main()


def start(command: str, inputs: Path, outputs: Path) -> Any:
    """Start a command, as its user repeats it if there is something to continue or replace."""
    outputs.mkdir(exist_ok=True)
    arguments = [word.format(inputs, outputs) for word in command.split()]
    run = outputs / "run"
    if (run / "config.json").exists():
        arguments.append("--recover")
    elif run.exists() or (outputs / "layers.hdf5").exists():
        arguments.append("--force")
    process = processes.Process(target=run_command, args=(arguments, f"{outputs}.log"))
    process.start()
    return process


def finish(process: Any, outputs: Path) -> None:
    process.join()
    assert process.exitcode == 0, Path(f"{outputs}.log").read_text()[-3000:]


def result(outputs: Path) -> Dict[str, Any]:
    """Return what counts of the outputs."""
    found: Dict[str, Any] = {}
    for path in filter(Path.is_file, outputs.rglob("*")):
        name = str(path.relative_to(outputs))
        if path.name == "results.json":
            found[name] = re.sub(r'"\w*seconds\w*": [\d.]+', "", path.read_text())
        # A kill just after a file was renamed leaves its lock to the next writer.
        elif name.startswith("out/") or ".partial/" in name:
            continue
        elif path.suffix == ".hdf5":
            found[name] = read_arrays(path)
        elif path.name == "best.th":
            found[name] = {key: value.numpy() for key, value in torch.load(path).items()}
        elif path.name == "metrics.json":
            found[name] = metrics(path.parent)
        elif path.name == "model.tar.gz":
            with tarfile.open(path) as archive:
                found[name] = sorted(archive.getnames())
        elif not name.startswith("run/"):
            found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: Any) -> Path:
    folder = write_data(tmp_path_factory.mktemp("inputs"))
    changes = {"train_data_path": str(folder / "heldout.txt"), "trainer.callbacks": []}
    write_config(folder, folder, changes)
    (folder / "elmo").mkdir()
    write_random_elmo(folder / "elmo")
    write_task_data(folder / "data")
    finish(start(COMMANDS["train"], folder, folder), folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_random_kills(name: str, inputs: Path, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    begin = time.monotonic()
    finish(start(COMMANDS[name], inputs, undisturbed), undisturbed)
    seconds = time.monotonic() - begin
    numbers = random.Random(os.environ.get("RANDOM_KILLS_SEED", "0") + name)
    n_kills = n_rounds = 0
    while n_kills < N_KILLS / len(COMMANDS):
        outputs = tmp_path / str(n_rounds)
        n_rounds += 1
        for _ in range(numbers.choice([1, 1, 2, 3])):
            process = start(COMMANDS[name], inputs, outputs)
            process.join(numbers.uniform(0, 1.05 * seconds))
            if process.exitcode is None:
                n_kills += 1
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            else:
                finish(process, outputs)
        finish(start(COMMANDS[name], inputs, outputs), outputs)
        numpy.testing.assert_equal(result(outputs), result(undisturbed))
