"""Runs of `allennlp train` in processes of their own, which may be killed and recovered."""

import functools
import gzip
import json
import multiprocessing
import os
import random
import sys
import types
from pathlib import Path
from typing import Any, Dict, List

import numpy
import torch
from allennlp.commands import main
from allennlp.commands import train as train_command
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import install_sigterm_handler, prepare_environment
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary


@TrainerCallback.register("write_losses")
class WriteLosses(TrainerCallback):
    """Appends the losses of each batch to a file at once, so that a kill takes none away."""

    raise_at = 0
    """Raise `Killed` after this batch of all epochs; 0: don't."""

    def on_batch(
        self,
        trainer: Any,
        batch_inputs: Any,
        batch_outputs: List[Dict[str, Any]],
        batch_metrics: Dict[str, Any],
        epoch: int,
        batch_number: int,
        is_training: bool,
        **kwargs: Any,
    ) -> None:
        if not is_training:
            return
        losses = [output["loss"].item().hex() for output in batch_outputs]
        name = f"losses_{trainer._rank}.jsonl" if trainer._rank else "losses.jsonl"
        # Until the end of an epoch, AllenNLP's is the mean since the process has started.
        batch_metrics.pop("reg_loss", None)
        with open(Path(self.serialization_dir) / name, "a", encoding="utf-8") as log:
            entry = [epoch, batch_number, trainer._total_batches_completed, losses, batch_metrics]
            log.write(json.dumps([*entry, torch.initial_seed()]) + "\n")
        if trainer._total_batches_completed == WriteLosses.raise_at:
            raise Killed


def _train(arguments: List[str], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    # The processes of distributed training need not import everything again.
    spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
    train_command.mp = types.SimpleNamespace(spawn=spawn)
    sys.argv = ["allennlp", "train", *arguments]
    install_sigterm_handler()
    main()


# A process that has imported everything, and has children that begin at once.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.all_plugins", __name__])


def start(config: Path, folder: Path) -> Any:
    """Start `allennlp train`, with `--recover` if there is something to recover."""
    arguments = [str(config), "-s", str(folder)]
    if folder.exists():
        arguments.append("--recover")
    output = str(folder.with_name(f"{folder.name}.output"))
    process = processes.Process(target=_train, args=(arguments, output))
    process.start()
    return process


def train(config: Path, folder: Path) -> str:
    """Run `start` to the end, which has to be good. Return what it printed."""
    return finish(start(config, folder), folder)


class Killed(BaseException):
    """The end of a training in this process."""


def train_here(config: Path, folder: Path, kill_at: int = 0) -> Any:
    """Train or recover in this process, until `Killed` after a batch. Return the metrics."""
    params = Params.from_file(config)
    prepare_environment(params)
    folder.mkdir(exist_ok=True)
    WriteLosses.raise_at = kill_at
    try:
        loop = TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
        found = loop.run()
        loop.finish(found)
    finally:
        WriteLosses.raise_at = 0
    return found


def train_in_group(rank: int, configs: List[Path], folders: List[Path], n_local: int) -> Any:
    """
    What a process of `run_processes` trains: the metrics, or the error in a configuration. Each
    machine has a config and a folder, and `n_local` processes.
    """
    world_size = n_local * len(folders)
    os.environ["ALLENNLP_PROCS_PER_NODE"] = str(n_local)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    params = Params.from_file(configs[rank // n_local])
    params.params.pop("distributed", None)
    local_rank = rank % n_local
    params["trainer"].params.update(
        local_rank=local_rank, cuda_device=-1, world_size=world_size, distributed=world_size > 1
    )
    folder = str(folders[rank // n_local])
    try:
        return TrainModel.from_params(
            params=params, serialization_dir=folder, local_rank=local_rank
        ).run()
    except ConfigurationError as error:
        return str(error)


def finish(process: Any, folder: Path, status: int = 0) -> str:
    """Wait for a process of `start`, check its exit status and return what it printed."""
    process.join(300)
    printed = folder.with_name(f"{folder.name}.output").read_text(encoding="utf-8")
    assert process.exitcode == status, printed
    return printed


def losses(folder: Path, name: str = "losses.jsonl") -> Dict[Any, Any]:
    """The losses of each batch; those of a batch trained twice have to be the same."""
    seen: Dict[Any, Any] = {}
    for line in (folder / name).read_text(encoding="utf-8").splitlines():
        epoch, *others = json.loads(line)
        assert seen.setdefault((epoch, others[0]), others) == others
    return seen


def metrics(folder: Path, name: str = "metrics") -> Any:
    values = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return {key: v for key, v in values.items() if "duration" not in key and "memory" not in key}


def assert_equal_runs(folder: Path, whole: Path) -> None:
    assert losses(folder) == losses(whole)
    assert metrics(folder) == metrics(whole)
    for file in whole.glob("metrics_epoch_*.json"):
        assert metrics(folder, file.stem) == metrics(whole, file.stem)
    found, expected = (torch.load(f / "best.th") for f in (folder, whole))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def write_data(folder: Path) -> Path:
    """Write a corpus, some of its files compressed, and a vocabulary."""
    random_ = random.Random(0)
    words = [f"w{i}" for i in range(60)]
    (folder / "shards").mkdir()
    for shard in range(4):
        lines = (
            " ".join(random_.choices(words, k=random_.choice([0, 3, 9, 30]))) for _ in range(30)
        )
        text = "".join(f"{line}\n" for line in lines).encode()
        if shard % 2:
            (folder / "shards" / f"{shard}.gz").write_bytes(gzip.compress(text))
        else:
            (folder / "shards" / f"{shard}.txt").write_bytes(text)
    (folder / "heldout.txt").write_bytes(text)
    make_vocabulary([str(folder / "shards")], folder / "vocabulary")
    return folder


def write_config(folder: Path, data: Path, changes: Dict[str, Any]) -> Path:
    reader = {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 7}
    config = {
        "dataset_reader": {**reader, "shuffle_sentences": True},
        "validation_dataset_reader": {**reader, "drop_last": False},
        "train_data_path": str(data / "shards"),
        "validation_data_path": str(data / "heldout.txt"),
        "vocabulary": {"type": "from_files", "directory": str(data / "vocabulary" / "vocabulary")},
        "model": {
            "type": "bidirectional_lm",
            "num_samples": 20,
            "options": {
                "dropout": 0.3,
                "lstm": {"dim": 12, "projection_dim": 8, "n_layers": 2},
                "char_cnn": {
                    "activation": "relu",
                    "embedding": {"dim": 4},
                    "filters": [[1, 4], [2, 4]],
                    "max_characters_per_token": 50,
                    "n_characters": 261,
                    "n_highway": 1,
                },
            },
        },
        "data_loader": {"type": "truncated_bptt"},
        "trainer": {
            "num_epochs": 3,
            "cuda_device": -1,
            "validation_metric": "-perplexity",
            "optimizer": {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0},
            "grad_norm": 10.0,
            "checkpointer": {"save_every_num_batches": 7, "keep_most_recent_by_count": 2},
            "callbacks": ["write_losses"],
        },
    }
    params = Params.from_file(_write(folder / "base.json", config), json.dumps(changes))
    return _write(folder / "config.json", params.as_dict(quiet=True))


def _write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path
