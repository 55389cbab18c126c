"""Commands that are killed (SIGKILL) at random moments, once or several times, and then repeated
with the same arguments: what they leave in the end is what an undisturbed run leaves.

`RANDOM_KILLS=200 python -m pytest tests/random_kills_test.py` spreads so many over the commands.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import pytest
import torch
from allennlp.commands import main

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel  # noqa: F401
from tests.support.task_data import write_task_data
from tests.support.testing import read_arrays, write_random_elmo
from tests.support.training_runs import metrics, write_config

pytestmark = pytest.mark.nightly

N_KILLS = int(os.environ.get("RANDOM_KILLS", 6))

# A process that has imported everything, and has children that begin at once.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.all_plugins", __name__])


def _run(arguments: List[str], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.setsid()
    torch.set_num_threads(1)
    sys.argv = ["allennlp", *arguments]
    main()


def _start(arguments: List[str], folder: Path) -> Any:
    process = processes.Process(target=_run, args=(arguments, str(folder / "output.txt")))
    process.start()
    return process


def _finish(arguments: List[str], folder: Path) -> float:
    """Runs a command to its end, which is a good one, and returns the seconds that took."""
    start = time.monotonic()
    process = _start(arguments, folder)
    process.join()
    assert process.exitcode == 0, (arguments, (folder / "output.txt").read_text()[-3000:])
    return time.monotonic() - start


class Command(NamedTuple):
    """A command whose repetition goes on with, or replaces, what a killed run has left."""

    arguments: Callable[[Path, Path], List[str]]
    """From the folders of the inputs and of the outputs."""
    result: Callable[[Path], Any]
    """What counts of the folder of the outputs."""


def _train(inputs: Path, outputs: Path) -> List[str]:
    run = outputs / "run"
    begun = (run / "config.json").exists()
    return [
        *("train", str(inputs / "config.json"), "-s", str(run)),
        *(["--recover"] if begun else ["--force"] if run.exists() else []),
    ]


def _files(folder: Path) -> Dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _trained(outputs: Path) -> Any:
    with tarfile.open(outputs / "run" / "model.tar.gz") as archive:
        names = sorted(archive.getnames())
        weights = torch.load(archive.extractfile("weights.th"))
    lists = {key: value.tolist() for key, value in weights.items()}
    return metrics(outputs / "run"), names, lists


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if "seconds" not in key}
    return list(map(_timeless, value)) if isinstance(value, list) else value


def _benchmarked(outputs: Path) -> Any:
    return _timeless(json.loads((outputs / "out" / "results.json").read_text()))


COMMANDS = {
    "vocabulary": Command(
        lambda inputs, outputs: [
            *("elmo-vocab", str(inputs / "train.txt"), "--output", str(outputs / "vocab")),
            "--force",
        ],
        lambda outputs: _files(outputs / "vocab"),
    ),
    "train": Command(_train, _trained),
    "export": Command(
        lambda inputs, outputs: [
            *("elmo-export", str(inputs / "run" / "model.tar.gz"), str(outputs / "elmo")),
            "--force",
        ],
        lambda outputs: (read_arrays(outputs / "elmo" / "weights.hdf5"), sorted(_files(outputs))),
    ),
    "import": Command(
        lambda inputs, outputs: [
            *("elmo-import", str(inputs / "elmo"), str(outputs / "imported"), "--force"),
            *("--vocab-file", str(inputs / "vocab.txt")),
        ],
        lambda outputs: sorted(_files(outputs)),
    ),
    "embed": Command(
        lambda inputs, outputs: [
            *("elmo", str(inputs / "train.txt"), str(outputs / "layers.hdf5"), "--all", "--resume"),
            *("--options-file", str(inputs / "elmo" / "options.json")),
            *("--weight-file", str(inputs / "elmo" / "weights.hdf5")),
            *(["--force"] if (outputs / "layers.hdf5").exists() else []),
        ],
        lambda outputs: (read_arrays(outputs / "layers.hdf5"), sorted(_files(outputs))),
    ),
    "benchmark": Command(
        lambda inputs, outputs: [
            *("elmo-benchmark", "--tasks", "sst5", "--elmo", str(inputs / "elmo"), "--seeds", "1"),
            *("--data", str(inputs / "data"), "--output", str(outputs / "out")),
            *("-o", json.dumps({"trainer.num_epochs": 1})),
        ],
        _benchmarked,
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    numbers = random.Random(0)
    lines = [
        " ".join(f"w{int(numbers.paretovariate(1)) % 60}" for _ in range(numbers.randrange(1, 9)))
        for _ in range(200)
    ]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    make_vocabulary([str(folder / "train.txt")], str(folder / "vocab"))
    words = (folder / "vocab" / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(words)
    changes = {
        "train_data_path": str(folder / "train.txt"),
        "validation_data_path": str(folder / "train.txt"),
        "vocabulary.directory": str(folder / "vocab" / "vocabulary"),
        "trainer.callbacks": [],
    }
    write_config(folder, folder, changes)
    (folder / "elmo").mkdir()
    write_random_elmo(folder / "elmo")
    write_task_data(folder / "data")
    _finish(["train", str(folder / "config.json"), "-s", str(folder / "run")], folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_random_kills(name: str, inputs: Path, tmp_path: Path) -> None:
    command = COMMANDS[name]
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    seconds = _finish(command.arguments(inputs, undisturbed), tmp_path)
    expected = command.result(undisturbed)
    numbers = random.Random(os.environ.get("RANDOM_KILLS_SEED", "0") + name)
    n_kills = n_rounds = 0
    while n_kills < N_KILLS / len(COMMANDS):
        outputs = tmp_path / str(n_rounds)
        n_rounds += 1
        outputs.mkdir()
        for _ in range(numbers.choice([1, 1, 2, 3])):
            process = _start(command.arguments(inputs, outputs), tmp_path)
            process.join(numbers.uniform(0, 1.05 * seconds))
            if process.exitcode is None:
                n_kills += 1
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            elif process.exitcode != 0:
                raise AssertionError((n_kills, (tmp_path / "output.txt").read_text()[-3000:]))
        _finish(command.arguments(inputs, outputs), tmp_path)
        assert_same(command.result(outputs), expected)


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (tuple, list)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            assert_same(one, other)
    elif hasattr(left, "shape"):
        assert left.shape == right.shape and (left == right).all()
    else:
        assert left == right
