"""Training on a GPU, and what is made of its models, give the CPU's numbers."""

import json
import random
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model, load_archive
from allennlp.predictors import Predictor
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.training.adagrad_file import read_adagrad_state, write_adagrad_state
from tests.support.device_checks import arrays_of, assert_close, check_on_gpu
from tests.support.pretend_gpu import gpu_for_tests
from tests.support.testing import read_arrays

LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True}
CHAR_CNN = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 3]], "n_highway": 1}
CHARACTERS = {"options": {"lstm": LSTM, "char_cnn": CHAR_CNN}}
TOKENS = {"options": {"lstm": LSTM}}
CHECKPOINTS = {"checkpointer": {"save_every_num_batches": 2}}
TIED = {"options": {"lstm": LSTM}, "share_embedding_softmax": True}
SMALL_CORPUS = {
    "precision": "bfloat16",
    "dropout": 0.3,
    "variational_dropout": True,
    "recurrent_dropout": 0.3,
    "state_reset": 0.4,
}


FILES = ("weights", "softmax")


class _Interruption(Exception):
    pass


@TrainerCallback.register("steps_of_device_test")
class Steps(TrainerCallback):
    """Keeps the losses of all steps of the last run, and stops it after so many."""

    losses: List[float] = []
    stop_after: Optional[int] = None

    def on_batch(self, trainer: Any, *args: Any, is_training: bool, **kwargs: Any) -> None:
        if is_training:
            Steps.losses += [output["loss"].item() for output in args[1]]
            if len(Steps.losses) == Steps.stop_after:
                raise _Interruption


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts and their vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(0)
    for name, n_sentences in (("train", 12), ("heldout", 3)):
        words = ([f"w{int(30 * rng.random() ** 2)}" for _ in range(5)] for _ in range(n_sentences))
        (folder / f"{name}.txt").write_text("\n".join(map(" ".join, words)), encoding="utf-8")
    make_vocabulary(folder / "train.txt", folder / "vocabulary")
    return folder


def config(data: Path, device: torch.device, model: Dict[str, Any], **trainer: Any) -> Params:
    has_characters = "char_cnn" in model.get("options", CHARACTERS["options"])
    reader = {
        "type": "truncated_bptt_lm",
        "batch_size": 3,
        "num_steps": 4,
        "max_characters_per_token": 50 if has_characters else None,
    }
    return Params(
        {
            "dataset_reader": {**reader, "shuffle_sentences": True},
            "validation_dataset_reader": {**reader, "drop_last": False},
            "train_data_path": str(data / "train.txt"),
            "validation_data_path": str(data / "heldout.txt"),
            "vocabulary": {
                "type": "from_files",
                "directory": str(data / "vocabulary" / "vocabulary"),
            },
            "model": {"type": "bidirectional_lm", "num_samples": 8, **model},
            "data_loader": {"type": "truncated_bptt"},
            "trainer": {
                "num_epochs": 2,
                "cuda_device": -1 if device.type == "cpu" else device.index,
                "optimizer": {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0},
                "grad_norm": 10.0,
                "callbacks": ["steps_of_device_test"],
                **trainer,
            },
        }
    )


def train(params: Params, folder: Path, **kwargs: Any) -> Dict[str, Any]:
    """Train a model; return the losses of all steps, its metrics and its parameters."""
    Steps.losses = []
    train_model(params, str(folder), **kwargs)
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {
        "losses": Steps.losses,
        "metrics": {key: value for key, value in metrics.items() if "perplexity" in key},
        "parameters": arrays_of(torch.load(folder / "best.th")),
    }


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuple[Path, Any]:
    """The folder of a run on a GPU, and what `train` returns of it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with gpu_for_tests() as gpu:
        return folder, train(config(data, gpu.device, CHARACTERS, **CHECKPOINTS), folder)


@pytest.mark.parametrize(
    "model",
    [
        CHARACTERS,
        {**CHARACTERS, "num_samples": 0},
        TOKENS,
        {**TIED, "num_samples": 0},
        TIED,
        {**CHARACTERS, "bidirectional": False, "precision": "bfloat16"},
    ],
    ids=["characters", "full softmax", "tokens", "tied, full softmax", "tied", "forward, bfloat16"],
)
def test_training(model: Dict[str, Any], data: Path, tmp_path: Path) -> None:
    def run(device: torch.device) -> Any:
        params = config(data, device, model, num_epochs=1)
        if "bidirectional" in model:
            params["dataset_reader"]["bidirectional"] = False
            params["validation_dataset_reader"]["bidirectional"] = False
        return train(params, tmp_path / device.type)

    check_on_gpu(run, atol=1e-2 if "precision" in model else 1e-5)


def test_training_on_the_default_device(data: Path, trained: Any, tmp_path: Path) -> None:
    with gpu_for_tests() as gpu, gpu.device:
        params = config(data, gpu.device, {"pretrained_file": str(trained[0])}, num_epochs=1)
        on_default = train(params.duplicate(), tmp_path / "default")
        predictor = Predictor.from_archive(load_archive(tmp_path / "default", cuda_device=0))
        predictor.predict("w1 w0")
    with gpu_for_tests() as gpu:
        expected = train(params, tmp_path / "run")
    if not gpu.is_real:  # A GPU draws other random numbers, here for weights that are then read.
        assert_close(on_default, expected)


def interrupt_and_recover(params: Params, others: Params, folder: Path) -> Dict[str, Any]:
    """Stop in the second epoch, and go on with other parameters."""
    Steps.stop_after = 8
    try:
        with pytest.raises(_Interruption):
            train(params, folder)
    finally:
        Steps.stop_after = None
    # AllenNLP refuses to go on with parameters that are not those of the run.
    others.to_file(str(folder / "config.json"))
    return train(others, folder, recover=True)


@pytest.mark.nightly
def test_recovery(data: Path, tmp_path: Path, pretend_gpu: Any) -> None:
    model = {"options": {**CHARACTERS["options"], "dropout": 0.3}}
    trainer = CHECKPOINTS
    params = config(data, pretend_gpu.device, model, **trainer)
    expected = train(params.duplicate(), tmp_path / "whole")
    actual = interrupt_and_recover(params.duplicate(), params.duplicate(), tmp_path / "run")
    assert 0 < len(actual["losses"]) < len(expected["losses"])
    expected["losses"] = expected["losses"][-len(actual["losses"]) :]
    assert_close(actual, expected, atol=1e-6 if pretend_gpu.is_real else 0.0)


def evaluated(folder: Path, data: Path, device: torch.device) -> Any:
    number = -1 if device.type == "cpu" else device.index
    metrics = evaluate_from_archive(str(folder), str(data / "heldout.txt"), cuda_device=number)
    return {key: value for key, value in metrics.items() if "perplexity" in key}


def predicted(folder: Path, data: Path, device: torch.device) -> Any:
    number = -1 if device.type == "cpu" else device.index
    predictor = Predictor.from_archive(load_archive(folder, cuda_device=number))
    lines = [{"sentence": each} for each in ("w1 w0 unknown w2", "", "w3")]
    return predictor.predict_batch_json(lines)


@pytest.mark.parametrize("use", [evaluated, predicted])
def test_trained_model(use: Callable[..., Any], data: Path, trained: Any) -> None:
    check_on_gpu(lambda device: use(trained[0], data, device))


def test_export(trained: Any, tmp_path: Path) -> None:
    """Of a model of a GPU, on a machine without one and on one that has it."""

    def written(device: torch.device) -> Any:
        export(str(trained[0] / "model.tar.gz"), tmp_path / device.type)
        return [read_arrays(tmp_path / device.type / f"{name}.hdf5") for name in FILES]

    check_on_gpu(written, atol=0.0)


def test_adagrad_state(tmp_path: Path, pretend_gpu: Any) -> None:
    def optimizer(device: str) -> Any:
        weight = torch.nn.Parameter(torch.arange(6.0).view(3, 2).to(device))
        return weight, torch.optim.Adagrad([weight], initial_accumulator_value=1.0)

    for first, second in (("cuda:0", "cpu"), ("cpu", "cuda:0")):
        weight, adagrad = optimizer(first)
        weight.pow(2).sum().backward()
        adagrad.step()
        sums = adagrad.state[weight]["sum"]
        write_adagrad_state(tmp_path / "adagrad.hdf5", [("weight", sums)], 1)
        weight, adagrad = optimizer(second)
        read_adagrad_state(tmp_path / "adagrad.hdf5", [("weight", weight)], adagrad)
        assert adagrad.state[weight]["sum"].device == torch.device(second)
        assert torch.equal(adagrad.state[weight]["sum"].cpu(), sums.cpu())


@pytest.mark.parametrize(
    "model, n_syncs, n_copies",
    [
        # The lengths, the words and the losses (2); two indices, two of words, and samples.
        (CHARACTERS, 4, 6),
        (TIED, 3, 4),
        ({**CHARACTERS, "num_samples": 0}, 4, 4),
        # The rows that start from zero.
        ({**CHARACTERS, **SMALL_CORPUS}, 4, 7),
    ],
    ids=["characters", "tied", "full softmax", "small corpus"],
)
def test_syncs_of_a_step(
    model: Dict[str, Any], n_syncs: int, n_copies: int, data: Path, pretend_gpu: Any
) -> None:
    waits = []
    for num_steps in (3, 9):
        params = config(data, pretend_gpu.device, model)
        params["dataset_reader"]["num_steps"] = num_steps
        vocab = Vocabulary.from_params(params["vocabulary"])
        language_model: Any = Model.from_params(params["model"], vocab=vocab)
        language_model.to(pretend_gpu.device)
        # Of the first words of a text alone.
        language_model._warn = lambda targets: None
        reader = DatasetReader.from_params(params["dataset_reader"])
        loader = TruncatedBpttDataLoader(reader, params["train_data_path"])
        loader.index_with(vocab)
        loader.set_target_device(pretend_gpu.device)
        batches = iter(loader)
        language_model(**next(batches))["loss"].backward()
        batch = next(batches)
        with pretend_gpu.count() as counts:
            language_model(**batch)["loss"].backward()
        assert counts.syncs <= n_syncs, counts.report()
        assert counts.host_to_device <= n_copies, counts.report()
        waits.append(counts.events)
    assert waits[0] == waits[1]
