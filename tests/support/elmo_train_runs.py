"""
Runs of the training loop, by `elmo-train`, here or in processes, which may be killed and resumed;
those by `allennlp train` are in training_runs.py.
"""

import functools
import json
import os
import random
from contextlib import contextmanager
from unittest.mock import patch

import torch

from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.training import trainer
from allennlp_elmo_plugin.training.processes import rank, world_size
from allennlp_elmo_plugin.training.trainer import Trainer
from tests.support.corpora import write_corpus
from tests.support.testing import fork

_MODEL = ("options", "num_samples", "bidirectional", "share_embedding_softmax")
_TEXT = ("batch_size", "num_steps", "shuffle_sentences")
_OF_ALLENNLP = ("type", "cuda_device", "adagrad_state")


def write_data(folder):
    """Write a corpus, one of its files compressed, and a vocabulary."""
    random_ = random.Random(0)
    words = [f"w{i}" for i in range(60)]
    lines = [" ".join(random_.choices(words, k=random_.choice([0, 3, 9, 30]))) for _ in range(120)]
    write_corpus(folder / "shards", lines)
    (folder / "heldout.txt").write_text("".join(f"{line}\n" for line in lines[-30:]))
    make_vocabulary([str(folder / "shards")], folder / "vocabulary")
    return folder


def write_config(folder, data, changes):
    """Write a config of `allennlp train`, for two epochs of a dozen batches."""
    reader = {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 7}
    char_cnn = {"activation": "relu", "embedding": {"dim": 4}, "filters": [[1, 4], [2, 4]]}
    char_cnn.update(max_characters_per_token=50, n_characters=261, n_highway=1)
    lstm = {"dim": 12, "projection_dim": 8, "n_layers": 2}
    options = {"dropout": 0.3, "lstm": lstm, "char_cnn": char_cnn}
    config = {
        "dataset_reader": {**reader, "shuffle_sentences": True},
        "validation_dataset_reader": {**reader, "drop_last": False},
        "train_data_path": str(data / "heldout.txt"),
        "validation_data_path": str(data / "heldout.txt"),
        "vocabulary": {"type": "from_files", "directory": str(data / "vocabulary" / "vocabulary")},
        "model": {"type": "bidirectional_lm", "num_samples": 20, "options": options},
        "data_loader": {"type": "truncated_bptt"},
        "trainer": {"type": "language_model", "num_epochs": 2, "cuda_device": -1},
    }
    for key, value in changes.items():
        *sections, last = key.split(".")
        functools.reduce(lambda values, name: values[name], sections, config)[last] = value
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def write_size(config, path):
    """Write the settings of a config of `allennlp train` as a size."""
    values = json.loads(config.read_text(encoding="utf-8"))
    model = {key: values["model"][key] for key in _MODEL if key in values["model"]}
    batches = {"batches_per_epoch": values["data_loader"].get("batches_per_epoch")}
    size = {
        "model": model,
        "text": {**batches, **{key: values["dataset_reader"][key] for key in _TEXT}},
        "validation": {},
        "training": {k: v for k, v in values["trainer"].items() if k not in _OF_ALLENNLP},
    }
    path.write_text(json.dumps(size), encoding="utf-8")
    return path


@contextmanager
def noted_losses(log=None, stop_at=0, stop=None, seconds=600.0):
    """
    In the `with` block, training appends the losses of each update to a file, if one is given, in
    distributed training one for each process, and calls `stop` after a batch. It saves every few
    `seconds`.
    """
    step = Trainer.step

    def noted_step(self, *batches):
        outputs = []
        hook = self.model.register_forward_hook(lambda *call: outputs.append(call[-1]))
        step(self, *batches)
        hook.remove()
        if log is not None:
            losses = [[output[name].item().hex() for name in sorted(output)] for output in outputs]
            name = f"{log}{rank() if world_size() > 1 else ''}"
            with open(name, "a", encoding="utf-8") as file:
                file.write(json.dumps([self.n_batches, losses]) + "\n")
        if stop is not None and self.n_batches == stop_at:
            stop()

    with (
        patch.object(Trainer, "step", noted_step),
        patch.object(trainer, "SECONDS_BETWEEN_CHECKPOINTS", seconds),
    ):
        yield


def elmo_train(arguments, log=None, **settings):
    """Run the command here, with the settings of `noted_losses`."""
    with noted_losses(log, **settings):
        main(["elmo-train", *map(str, arguments), "-q"])


def start_processes(world_size, port, folder, *arguments, **settings):
    """Start the processes as torchrun does, and return their numbers."""

    def run(rank):
        os.environ.update(
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_WORLD_SIZE=str(world_size),
        )
        torch.set_num_threads(1)
        elmo_train(arguments, f"{folder}.losses", **settings)

    return [fork(lambda rank=rank: run(rank), wait=False) for rank in range(world_size)]


def losses(log):
    """The losses of each update; those of one made twice have to be the same."""
    seen = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        number, values = json.loads(line)
        assert seen.setdefault(number, values) == values
    return [seen[number] for number in sorted(seen)]


def metrics(folder):
    """The metrics of all epochs, without times."""
    files = sorted(folder.glob("metrics_epoch_*.json"))
    epochs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return [{k: v for k, v in epoch.items() if "seconds" not in k} for epoch in epochs]
