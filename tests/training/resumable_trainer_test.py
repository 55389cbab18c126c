"""Runs that are killed and recovered against runs that were never stopped."""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Dict, List
from unittest.mock import MagicMock

import pytest
import torch
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model, load_archive
from allennlp.training import GradientDescentTrainer, Trainer

from allennlp_elmo_plugin.models import BidirectionalLanguageModel
from allennlp_elmo_plugin.training import ResumableTrainer, resumable_trainer
from allennlp_elmo_plugin.training.checkpointer import WholeCheckpointer
from tests.support.testing import read_files
from tests.support.training_runs import (
    assert_equal_runs,
    losses,
    metrics,
    recover,
    start,
    train,
    write_config,
)

LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
VARIANTS: Dict[str, Dict[str, Any]] = {
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
        "trainer.patience": 1,
    },
    "small_corpus": {
        "model.dropout": 0.3,
        "model.variational_dropout": True,
        "model.recurrent_dropout": 0.3,
        "model.state_reset": 0.2,
        "model.precision": "bfloat16",
        "dataset_reader.shuffle_sentences": False,
        "dataset_reader.contiguous": True,
        "validation_dataset_reader.contiguous": True,
        "trainer.optimizer": {"type": "dense_sparse_adam", "lr": 0.01},
        "trainer.learning_rate_scheduler": {
            "type": "linear_with_warmup",
            "warmup_steps": 10,
            "num_epochs": 2,
            "num_steps_per_epoch": 60,
        },
    },
}


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, `config.json`, and its run, `run`."""
    folder = tmp_path_factory.mktemp("whole")
    train(write_config(folder, data, {}), folder / "run")
    return folder


def test_killed_at_random_batches(whole: Path, tmp_path: Path) -> None:
    n_batches = len(losses(whole / "run"))
    random_ = random.Random(0)
    kills = [{"kill_at": random_.randint(1, n_batches // 3)} for _ in range(3)]
    recover(whole / "config.json", tmp_path / "run", whole / "run", kills)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(data: Path, tmp_path: Path, variant: str) -> None:
    config = write_config(tmp_path, data, VARIANTS[variant])
    train(config, tmp_path / "whole")
    # In the middle of the second epoch.
    kills = [{"kill_at": int(0.4 * len(losses(tmp_path / "whole")))}]
    recover(config, tmp_path / "run", tmp_path / "whole", kills)


@pytest.mark.parametrize("share", [0, 0.6])
def test_killed_while_a_checkpoint_is_written(whole: Path, tmp_path: Path, share: float) -> None:
    # In the trainer's state of the first and of the second, and in the model's of the second.
    kills = [{"kill_in_save": (n_saves, share)} for n_saves in (1, 3, 2)]
    recover(whole / "config.json", tmp_path / "run", whole / "run", kills)


def test_killed_before_the_best_model_is_copied(data: Path, tmp_path: Path) -> None:
    # Of the highest perplexity, which is that of the first epoch: the last model has a copy anyway.
    config = write_config(tmp_path, data, {"trainer.validation_metric": "+perplexity"})
    train(config, tmp_path / "whole")
    n_epochs = metrics(tmp_path / "whole")["best_epoch"] + 1
    assert n_epochs < 3
    batches = [epoch for epoch, _ in losses(tmp_path / "whole") if epoch < n_epochs]
    n_saves = n_epochs + sum(batches.count(epoch) // 7 for epoch in range(n_epochs))
    train(config, tmp_path / "run", kill_after_save=n_saves)
    assert (tmp_path / "run" / f"training_state_e{n_epochs}_b0.th").exists()
    recover(config, tmp_path / "run", tmp_path / "whole", [])


@pytest.mark.parametrize("shard, change", [("2.txt", b" w1\n"), ("0.txt", b""), ("2.txt", b"")])
def test_other_text(data: Path, tmp_path: Path, shard: str, change: bytes) -> None:
    shutil.copytree(data, tmp_path / "data")
    config = write_config(tmp_path, tmp_path / "data", {})
    train(config, tmp_path / "run", kill_at=10)
    before = read_files(tmp_path / "run", "out.log")
    path = tmp_path / "data" / "shards" / shard
    path.write_bytes((path.read_bytes() if change else path.read_bytes()[::-1]) + change)
    printed = train(config, tmp_path / "run", fails=True)
    found = " had " if change else " has other text of the same length"
    assert f"{shard}{found}" in printed and "put the files back" in printed
    assert read_files(tmp_path / "run", "out.log") == before


def replace_vocabulary(data: Path, words: List[str]) -> None:
    path = data / "vocabulary" / "vocabulary" / "lm_tokens.txt"
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


@pytest.mark.parametrize("change", ["order", "longer", "shorter"])
def test_other_vocabulary(data: Path, tmp_path: Path, change: str) -> None:
    shutil.copytree(data, tmp_path / "data")
    config = write_config(tmp_path, tmp_path / "data", {})
    train(config, tmp_path / "run", kill_at=10)
    before = read_files(tmp_path / "run")
    words = before["vocabulary/lm_tokens.txt"].decode().split()
    others = {
        "order": [*words[:-2], words[-1], words[-2]],
        "longer": [*words, "more"],
        "shorter": words[:-1],
    }
    replace_vocabulary(tmp_path / "data", others[change])
    printed = train(config, tmp_path / "run", fails=True)
    error = printed.splitlines()[-1]
    assert f"{tmp_path / 'run'}: the run was trained with another vocabulary" in error
    word = {"order": 61, "longer": 63, "shorter": 62}[change]
    assert f"word {word} is " in error and "start a new run" in error
    assert read_files(tmp_path / "run") == before

    replace_vocabulary(tmp_path / "data", words)
    train(config, tmp_path / "run")


def test_vocabulary_half_written(whole: Path, tmp_path: Path) -> None:
    """A run that was killed before it trained has nothing that belongs to its vocabulary."""
    train(whole / "config.json", tmp_path / "run", kill_at=1)
    vocabulary = tmp_path / "run" / "vocabulary" / "lm_tokens.txt"
    vocabulary.write_bytes(vocabulary.read_bytes()[:100])
    recover(whole / "config.json", tmp_path / "run", whole / "run", [])


# Later epochs are worse, by this measure: the second is the last, and the first the best.
STOPS_EARLY = {"trainer.validation_metric": "+perplexity", "trainer.patience": 1}


@pytest.fixture(scope="module")
def stopped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `whole`, of a run that stops early, and evaluates."""
    folder = tmp_path_factory.mktemp("stopped")
    test = {"test_data_path": str(data / "heldout.txt"), "evaluate_on_test": True}
    train(write_config(folder, data, {**STOPS_EARLY, **test}), folder / "run")
    assert metrics(folder / "run")["epoch"] == 1 and metrics(folder / "run")["best_epoch"] == 0
    return folder


@pytest.mark.parametrize("run", ["whole", "stopped"])
@pytest.mark.parametrize("lost", [[], ["metrics.json", "model.tar.gz"]])
def test_a_run_that_has_ended(
    run: str, lost: List[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It ends again as it did, also after a kill between the last epoch and its metrics."""
    ended = request.getfixturevalue(run)
    # A copy, which has nothing of its original.
    shutil.copytree(ended / "run", tmp_path / "moved")
    for name in lost:
        (tmp_path / "moved" / name).unlink()
    # The last model is written to best.th again if it is the best; `assert_equal_runs` compares it.
    written = ("out.log", "meta.json", "metrics.json", "model.tar.gz", "best.th")
    before = read_files(tmp_path / "moved", *written)
    (ended / "run").rename(ended / "away")
    try:
        for _ in range(2):
            printed = train(ended / "config.json", tmp_path / "moved")
    finally:
        (ended / "away").rename(ended / "run")
    assert "there is nothing to train" in printed
    assert_equal_runs(tmp_path / "moved", ended / "run")
    assert read_files(tmp_path / "moved", *written) == before
    folders = ended / "run", tmp_path / "moved"
    states = [load_archive(path / "model.tar.gz").model.state_dict() for path in folders]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_copied_in_the_middle(data: Path, tmp_path: Path) -> None:
    """A copy goes on by itself: it has nothing of its original, and takes nothing from it."""
    config = write_config(tmp_path, data, {"trainer.validation_metric": "+perplexity"})
    n_batches = 30
    train(config, tmp_path / "run", kill_at=n_batches)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    train(config, tmp_path / "run")
    (tmp_path / "run" / "best.th").write_bytes(b"not these")
    train(config, tmp_path / "copy")
    assert losses(tmp_path / "copy") == losses(tmp_path / "run")
    assert metrics(tmp_path / "copy") == metrics(tmp_path / "run")
    assert metrics(tmp_path / "copy")["best_epoch"] == 0


def test_one_text_for_training_and_validation(data: Path, tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        data,
        {"validation_data_path": str(data / "shards"), "validation_dataset_reader": None},
    )
    train(config, tmp_path / "whole")
    n_batches = len(losses(tmp_path / "whole"))
    kills = [{"kill_at": n_batches // 2}, {"kill_at": n_batches // 4}]
    recover(config, tmp_path / "run", tmp_path / "whole", kills)


def newest(folder: Path, kind: str) -> Path:
    return max(folder.glob(f"{kind}_state_*.th"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("kind", ["training", "model"])
def test_half_of_a_checkpoint_is_lost(whole: Path, tmp_path: Path, kind: str) -> None:
    train(whole / "config.json", tmp_path / "run", kill_at=24)
    newest(tmp_path / "run", kind).unlink()
    recover(whole / "config.json", tmp_path / "run", whole / "run", [])


@pytest.mark.parametrize("n_saves", [1, 4])
def test_full_disk(whole: Path, tmp_path: Path, n_saves: int) -> None:
    process = start(whole / "config.json", tmp_path / "run", full_disk_in_save=n_saves)
    process.join()
    printed = (tmp_path / "run.output").read_text(encoding="utf-8")
    name = {1: "training_state_e0_b7.th", 4: "model_state_e0_b14.th"}[n_saves]
    error = f"OSError: Can't write {tmp_path / 'run' / name}: File too large. Make room"
    assert printed.splitlines()[-1].startswith(error)
    recover(whole / "config.json", tmp_path / "run", whole / "run", [])


def test_more_epochs(data: Path, whole: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, data, {"trainer.num_epochs": 1})
    train(config, tmp_path / "run")
    for path in (config, tmp_path / "run" / "config.json"):
        path.write_text(path.read_text().replace('"num_epochs": 1', '"num_epochs": 3'))
    recover(config, tmp_path / "run", whole / "run", [])


@pytest.mark.parametrize("force", [False, True])
def test_one_process_at_a_time(whole: Path, tmp_path: Path, force: bool) -> None:
    process = start(whole / "config.json", tmp_path / "run")
    while not (tmp_path / "run" / "losses.jsonl").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)
    before = read_files(tmp_path / "run")
    printed = train(whole / "config.json", tmp_path / "run", fails=True, force=force)
    error = printed.splitlines()[-1]
    assert f"{tmp_path / 'run'}: another process is training in this folder" in error
    assert read_files(tmp_path / "run") == before
    process.kill()
    process.join()
    if force:  # everything is new
        train(whole / "config.json", tmp_path / "run", force=True)
        assert_equal_runs(tmp_path / "run", whole / "run")
    else:
        recover(whole / "config.json", tmp_path / "run", whole / "run", [])


def test_killed_from_outside(whole: Path, tmp_path: Path) -> None:
    # At no point in particular: the machine's load decides. The name has what a glob reads.
    folder = tmp_path / "run[1]*"
    for n_batches in (10, 30):
        process = start(whole / "config.json", folder)
        while not (folder / "losses.jsonl").exists() or len(losses(folder)) < n_batches:
            assert process.is_alive()
            time.sleep(0.01)
        process.kill()
        process.join()
    recover(whole / "config.json", folder, whole / "run", [])


class TestTrainer:
    @pytest.mark.parametrize("cuda_device", [-1, 0])
    def test_amp_is_refused(self, tmp_path: Path, cuda_device: int) -> None:
        model = torch.nn.Linear(1, 1)
        model.training_state = dict
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(ConfigurationError, match='"precision": "bfloat16" in the model'):
            ResumableTrainer(
                model,
                optimizer,
                MagicMock(),
                serialization_dir=str(tmp_path),
                cuda_device=cuda_device,
                use_amp=True,
            )

    def test_penalty_of_accumulated_batches(self, data: Path, tmp_path: Path) -> None:
        changes = {
            "train_data_path": str(data / "heldout.txt"),
            "model.regularizer": {"regexes": [["lstm", {"type": "l2", "alpha": 0.01}]]},
            "trainer.num_epochs": 1,
            "trainer.num_gradient_accumulation_steps": 3,  # the last group is not full
            "trainer.optimizer": {"type": "adagrad", "lr": 0.0},
        }
        params = Params.from_file(write_config(tmp_path, data, changes))
        model: Any = train_model(params, str(tmp_path / "run"))
        penalty = model.get_regularization_penalty().item()
        assert metrics(tmp_path / "run")["training_reg_loss"] == pytest.approx(penalty, rel=1e-6)

    @pytest.mark.parametrize(
        "changes",
        [
            {"trainer.type": "own", "trainer.own_setting": 1},
            {"model.type": "own", "trainer.validation_metric": "+own"},
            {"validation_data_path": None, "trainer.validation_metric": "+none"},
            {
                "trainer.validation_metric": ["-loss", "-reg_loss"],
                "model.regularizer": {"regexes": [["lstm", {"type": "l2", "alpha": 0.01}]]},
            },
        ],
        ids=str,
    )
    def test_settings_that_allennlp_accepts(
        self, changes: Dict[str, Any], data: Path, tmp_path: Path
    ) -> None:
        params = Params.from_file(write_config(tmp_path, data, changes))
        TrainModel.from_params(params=params, serialization_dir=str(tmp_path), local_rank=0)

    def test_checkpointer_of_a_config_without_one(self, data: Path, tmp_path: Path) -> None:
        params = Params.from_file(write_config(tmp_path, data, {}))
        params["trainer"].pop("checkpointer")
        loop: Any = TrainModel.from_params(
            params=params, serialization_dir=str(tmp_path), local_rank=0
        )
        assert type(loop.trainer._checkpointer) is WholeCheckpointer

    def test_is_the_default(self) -> None:
        assert Trainer.by_name("gradient_descent") == ResumableTrainer.from_partial_objects
        assert Trainer.by_name(Trainer.default_implementation)

    def test_leaves_others_alone(self, tmp_path: Path) -> None:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        stock, ours = (
            trainer_class(
                model, optimizer, MagicMock(), serialization_dir=str(tmp_path), cuda_device=-1
            )
            for trainer_class in (GradientDescentTrainer, ResumableTrainer)
        )
        states = [trainer.get_checkpoint_state().trainer_state for trainer in (stock, ours)]
        assert states[0] == states[1]

    def test_best_model_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C comes while weights are pickled, and the archive is made of those before."""

        class Interrupting:
            def __reduce__(self) -> Any:
                raise KeyboardInterrupt

        model: Any = torch.nn.Linear(1, 1)
        model.training_state = dict
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = ResumableTrainer(
            model, optimizer, MagicMock(), serialization_dir=str(tmp_path), cuda_device=-1
        )
        path = str(tmp_path / "best.th")
        trainer._save_model_state(path)
        os.link(path, tmp_path / "model_state_e1_b0.th")
        before = read_files(tmp_path)
        monkeypatch.setattr(model, "state_dict", lambda: {"bias": Interrupting()})
        with pytest.raises(KeyboardInterrupt):
            trainer._save_model_state(path)
        assert read_files(tmp_path) == before
        monkeypatch.setattr(model, "state_dict", lambda: {"bias": 1.0})
        trainer._save_model_state(path)
        assert torch.load(path) == {"bias": 1.0}
        assert "weight" in torch.load(tmp_path / "model_state_e1_b0.th")

    @pytest.mark.parametrize("is_language_model", [False, True])
    def test_is_made_by_position(
        self, is_language_model: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keep = MagicMock()
        monkeypatch.setattr(resumable_trainer, "keep_memory_of_training", keep)
        model: Any = Tables()
        if is_language_model:
            model.training_state = model.get_metrics = dict
        ResumableTrainer.from_partial_objects(model, str(tmp_path), MagicMock(), no_grad=["bias"])
        frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
        assert frozen == ["bias"]
        assert keep.called == is_language_model


@Trainer.register("own", constructor="from_partial_objects")
class OwnTrainer(ResumableTrainer):
    """A user's own, with a setting more."""

    def __init__(self, *args: Any, own_setting: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


@Model.register("own")
class OwnModel(BidirectionalLanguageModel):
    """A user's own, with a metric of validation."""

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        metrics = super().get_metrics(reset)
        return metrics if self.training else {**metrics, "own": 0.0}


def test_sparse_gradients_are_clipped() -> None:
    model: Any = torch.nn.Linear(2, 3)
    model.training_state = dict
    rows = torch.tensor([[1, 1]])
    values = torch.tensor([[0.4, -2.0], [0.4, 2.2]])
    model.weight.grad = torch.sparse_coo_tensor(rows, values, model.weight.shape)
    model.bias.grad = torch.tensor([-2.0, 0.1, 2.0])
    ResumableTrainer.clip_gradient(MagicMock(model=model, _grad_clipping=0.5))
    assert model.weight.grad.values().tolist() == [[0.5, pytest.approx(0.2)]]
    assert model.bias.grad.tolist() == [-0.5, pytest.approx(0.1), 0.5]


class Tables(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(9, 3))
        self.bias = torch.nn.Parameter(torch.randn(9))
        self.unused = torch.nn.Parameter(torch.randn(9, 3))
        self.dense = torch.nn.Parameter(torch.randn(3))

    def sparse_gradient_parameters(self) -> List[torch.nn.Parameter]:
        return [self.weight, self.bias, self.unused]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([1, 4, 7], id="in order"),
        pytest.param([4, 1, 4], id="repeated"),
        pytest.param([], id="no rows"),
    ],
)
@pytest.mark.parametrize("grad_norm", [0.5, 100.0, True, False])
def test_rows_are_sorted_at_most_once(rows: List[int], grad_norm: Any) -> None:
    models: List[Any] = [Tables(), Tables()]
    norms = []
    for model, kind in zip(models, (ResumableTrainer, GradientDescentTrainer)):
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=1.0)
        trainer = kind(model, optimizer, MagicMock(), grad_norm=grad_norm, cuda_device=-1)
        for name in ("weight", "bias"):
            shape = getattr(model, name).shape
            values = torch.arange(3.0 * len(rows)).view(-1, 3)[:, : shape[1] if shape[1:] else 1]
            values = values.reshape(-1, *shape[1:])
            indices = torch.tensor([rows], dtype=torch.long)
            getattr(model, name).grad = torch.sparse_coo_tensor(indices, values, shape)
        model.dense.grad = torch.ones(3)
        norms.append(trainer.rescale_gradients())
        if kind is ResumableTrainer:
            assert model.weight.grad.is_coalesced() and model.bias.grad.is_coalesced()
            assert model.weight.grad.indices()[0].tolist() == sorted(set(rows))
        optimizer.step()
    assert norms[0] == norms[1]
    for ours, theirs in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(ours, theirs)
