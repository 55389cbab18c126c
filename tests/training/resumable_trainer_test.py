"""Runs that are killed and recovered against runs that were never stopped."""

import gzip
import io
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params
from allennlp.training import checkpointer
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary


@TrainerCallback.register("write_losses")
class WriteLosses(TrainerCallback):
    """Appends epoch, batch and losses to a file at once, so that a kill takes none away."""

    kill_at = 0
    """Kill this process after so many batches; 0: don't."""

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
        shown = {key: batch_metrics[key] for key in ("loss", "perplexity")}
        with open(Path(self.serialization_dir) / "losses.jsonl", "a", encoding="utf-8") as log:
            entry = [epoch, batch_number, trainer._total_batches_completed, losses, shown]
            log.write(json.dumps(entry) + "\n")
        WriteLosses.kill_at -= 1
        if WriteLosses.kill_at == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_save(n_saves: int, share: float) -> None:
    """Lets the n-th call of AllenNLP's checkpointer to `torch.save` write a share and kill."""
    save = torch.save
    calls = itertools.count(1)

    def killing(state: Any, path: str) -> None:
        if next(calls) < n_saves:
            save(state, path)
            return
        content = io.BytesIO()
        save(state, content)
        if share:
            Path(path).write_bytes(content.getvalue()[: int(share * content.tell())])
        os.kill(os.getpid(), signal.SIGKILL)

    checkpointer.torch = type("torch", (), {"save": staticmethod(killing), "load": torch.load})


def _train(arguments: List[str], output: str, kill_at: int, kill_in_save: Any) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    WriteLosses.kill_at = kill_at
    if kill_in_save:
        _kill_in_save(*kill_in_save)
    sys.argv = ["allennlp", "train", *arguments]
    main()


# A process that has imported everything, and has children that begin at once.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["allennlp_elmo_plugin", "allennlp.commands", __name__])


def train(
    config: Path,
    folder: Path,
    kill_at: int = 0,
    kill_in_save: Any = None,
    fails: bool = False,
) -> str:
    """
    `allennlp train`, with `--recover` if there is something to recover. It has to end as it should:
    well, killed, or with an error. What it printed is given.
    """
    arguments = [str(config), "-s", str(folder)] + ["--recover"] * folder.exists()
    output = config.with_name("output")
    process = processes.Process(target=_train, args=(arguments, str(output), kill_at, kill_in_save))
    process.start()
    process.join()
    printed = output.read_text(encoding="utf-8")
    expected = -signal.SIGKILL if kill_at or kill_in_save else int(fails)
    assert process.exitcode == expected, printed
    return printed


def losses(folder: Path) -> Dict[Any, Any]:
    """The losses of each batch; those of a batch trained twice have to be the same."""
    seen: Dict[Any, Any] = {}
    for line in (folder / "losses.jsonl").read_text(encoding="utf-8").splitlines():
        epoch, *others = json.loads(line)
        assert seen.setdefault((epoch, others[0]), others) == others
    return seen


def metrics(folder: Path) -> Any:
    values = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {key: v for key, v in values.items() if "duration" not in key and "memory" not in key}


def assert_equal_runs(folder: Path, whole: Path) -> None:
    assert losses(folder) == losses(whole)
    assert metrics(folder) == metrics(whole)
    for file in whole.glob("metrics_epoch_*.json"):
        found, expected = (json.loads((f / file.name).read_text()) for f in (folder, whole))
        assert found["training_loss"] == expected["training_loss"]
        assert found["training_perplexity"] == expected["training_perplexity"]
    found, expected = (torch.load(f / "best.th") for f in (folder, whole))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, some of them compressed, and a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
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


LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
VARIANTS: Dict[str, Dict[str, Any]] = {
    "shuffled": {},
    "worker": {"data_loader.num_workers": 1},
    "epochs_of_batches": {
        "data_loader.batches_per_epoch": 30,
        "trainer.num_gradient_accumulation_steps": 2,
    },
    "token_model": {
        "model.options": {"dropout": 0.3, "lstm": LSTM},
        "dataset_reader.max_characters_per_token": None,
        "validation_dataset_reader.max_characters_per_token": None,
        "dataset_reader.shuffle_sentences": False,
        "model.regularizer": {"regexes": [["softmax.*", {"type": "l2", "alpha": 0.01}]]},
        "trainer.learning_rate_scheduler": {"type": "noam", "model_size": 8, "warmup_steps": 20},
        "trainer.moving_average": {"type": "exponential", "decay": 0.9},
        "trainer.patience": 1,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_random_batches(data, tmp_path, variant):
    path = write_config(tmp_path, data, VARIANTS[variant])
    train(path, tmp_path / "whole")
    n_batches = len(losses(tmp_path / "whole"))
    random_ = random.Random(variant)
    for _ in range(2):
        train(path, tmp_path / "killed", kill_at=random_.randint(8, n_batches // 2))
    train(path, tmp_path / "killed")
    assert_equal_runs(tmp_path / "killed", tmp_path / "whole")


class TestCheckpoints:
    @pytest.fixture(scope="class")
    def whole(self, data, tmp_path_factory):
        folder = tmp_path_factory.mktemp("whole")
        train(write_config(folder, data, {"trainer.num_epochs": 2}), folder / "run")
        return folder

    def kill_and_recover(self, whole, folder, kills):
        for kill in kills:
            train(whole / "config.json", folder, **kill)
        printed = train(whole / "config.json", folder)
        assert_equal_runs(folder, whole / "run")
        return printed

    @pytest.mark.parametrize("share", [0, 0.6, 1])
    def test_killed_while_one_is_written(self, whole, tmp_path, share):
        # The second checkpoint's model, then in the next process the first one's training state.
        kills = [{"kill_in_save": (3, share)}, {"kill_in_save": (2, share)}]
        printed = self.kill_and_recover(whole, tmp_path / "run", kills)
        assert "Removing the checkpoint of epoch 0" in printed or share == 1

    def test_killed_in_the_first(self, whole, tmp_path):
        self.kill_and_recover(whole, tmp_path / "run", [{"kill_in_save": (1, 0.5)}])
