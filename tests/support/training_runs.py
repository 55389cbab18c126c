"""Runs of `allennlp train`, here or in a process, which may be killed and recovered."""

import functools
import json
import os
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from allennlp.commands import main
from allennlp.commands import train as train_command
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import install_sigterm_handler, prepare_environment
from allennlp.training.callbacks import TrainerCallback

from tests.support.elmo_train_runs import write_config, write_data  # noqa: F401
from tests.support.testing import fork


class Killed(BaseException):
    """The end of a training in this process."""


@TrainerCallback.register("write_losses")
class WriteLosses(TrainerCallback):
    """Appends the losses of each batch to a file at once, so that a kill takes none away."""

    def on_batch(self, trainer, _, outputs, metrics, *place, **kwargs):
        if kwargs["is_training"]:
            losses = [output["loss"].item().hex() for output in outputs]
            # Until the end of an epoch, AllenNLP's is the mean since the process has started.
            metrics.pop("reg_loss", None)
            n_batches = trainer._total_batches_completed
            entry = [*place, n_batches, losses, metrics, torch.initial_seed()]
            name = f"losses{trainer._rank}.jsonl"
            with open(Path(self.serialization_dir) / name, "a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")
        self.after_batch(trainer._total_batches_completed, kwargs["is_training"])

    def after_batch(self, n_batches, is_training):
        """For tests to replace."""


def train_here(config, folder, kill_at=0):
    """Train or recover in this process, and return the metrics, or until it is killed."""

    def kill(callback, n_batches, is_training):
        if is_training and n_batches == kill_at:
            raise Killed

    params = Params.from_file(config)
    prepare_environment(params)
    folder.mkdir(exist_ok=True)
    ends = pytest.raises(Killed) if kill_at else nullcontext()
    with patch.object(WriteLosses, "after_batch", kill), ends:
        loop = TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
        results = loop.run()
        loop.finish(results)
        return results


def start(config, folder):
    """Start `allennlp train`, with `--recover` for a folder that exists. Return the process."""
    arguments = ["train", str(config), "-s", str(folder), *["--recover"] * folder.exists()]

    def run():
        sys.argv = ["allennlp", *arguments]
        with open(f"{folder}.output", "w", buffering=1, encoding="utf-8") as output:
            os.dup2(output.fileno(), 2)
            sys.stdout = sys.stderr = output
            # The processes of distributed training need not import everything again.
            spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
            train_command.mp = types.SimpleNamespace(spawn=spawn)
            install_sigterm_handler()
            main()

    return fork(run, wait=False)


def finish(process, folder, status=0):
    """Wait for a process of `start`, check its exit status and return what it printed."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    printed = Path(f"{folder}.output").read_text(encoding="utf-8")
    assert code == status, printed
    return printed


def losses(folder, rank=0):
    """A process's losses of each batch; those of a batch trained twice have to be the same."""
    seen = {}
    for line in (folder / f"losses{rank}.jsonl").read_text().splitlines():
        epoch, *values = json.loads(line)
        assert seen.setdefault((epoch, values[0]), values) == values
    return seen


def metrics(folder, name="metrics"):
    values = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return {key: v for key, v in values.items() if "duration" not in key and "memory" not in key}


def assert_equal_runs(folder, whole):
    assert losses(folder) == losses(whole)
    assert metrics(folder) == metrics(whole)
    for file in whole.glob("metrics_epoch_*.json"):
        assert metrics(folder, file.stem) == metrics(whole, file.stem)
    actual, expected = (torch.load(f / "best.th") for f in (folder, whole))
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
