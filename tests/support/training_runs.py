"""Runs of `allennlp train`, here or in a process, which may be killed and recovered."""

import functools
import json
import os
import sys
import types
from pathlib import Path

import torch
from allennlp.commands import main
from allennlp.commands import train as train_command
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import install_sigterm_handler, prepare_environment
from allennlp.training.callbacks import TrainerCallback

from tests.support.elmo_train_runs import noted_losses, write_config, write_data  # noqa: F401
from tests.support.testing import fork

GRADIENT_DESCENT = {
    "num_epochs": 2,
    "cuda_device": -1,
    "validation_metric": "-perplexity",
    "optimizer": {
        "type": "adagrad",
        "lr": 0.2,
        "initial_accumulator_value": 1.0,
        "eps": 0.0,
    },
    "grad_norm": 10.0,
    "callbacks": ["write_losses"],
}
"""The settings of AllenNLP's own trainer for the training of a language model."""


@TrainerCallback.register("write_losses")
class WriteLosses(TrainerCallback):
    """Appends the losses of each update of AllenNLP's own trainer to a file."""

    def on_batch(self, trainer, batches, outputs, metrics, *place, is_training, **kwargs):
        if is_training:
            losses = [output["loss"].item().hex() for output in outputs]
            with open(f"{self.serialization_dir}.losses", "a", encoding="utf-8") as log:
                log.write(json.dumps([trainer._total_batches_completed, losses]) + "\n")


def train_here(config, folder):
    """Train or recover in this process, and return the metrics."""
    params = Params.from_file(config)
    prepare_environment(params)
    folder.mkdir(exist_ok=True)
    loop = TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
    results = loop.run()
    loop.finish(results)
    return results


def start(config, folder, **settings):
    """
    Start `allennlp train`, with `--recover` for a folder that exists and the settings of
    `noted_losses`. Return the process.
    """
    arguments = ["train", str(config), "-s", str(folder), *["--recover"] * folder.exists()]

    def run():
        sys.argv = ["allennlp", *arguments]
        with (
            open(f"{folder}.output", "w", buffering=1, encoding="utf-8") as output,
            noted_losses(f"{folder}.losses", **settings),
        ):
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


def metrics(folder, name="metrics"):
    values = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    left_out = ("duration", "memory", "seconds")
    return {key: v for key, v in values.items() if not any(name in key for name in left_out)}
