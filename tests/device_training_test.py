"""Training on a GPU, and what is made of its models, give the CPU's numbers."""

from pathlib import Path
from typing import Any, Dict

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model, load_archive
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from tests.support.device_checks import arrays_of, assert_few, check_on_gpu
from tests.support.pretend_gpu import gpu_for_tests
from tests.support.testing import read_arrays
from tests.support.training_runs import metrics, write_config, write_data

LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True}
CHARACTERS = {"model.options.lstm": LSTM, "model.options.dropout": 0.0}
FULL = {"model.num_samples": 0}
TOKENS = {
    "model.options": {"lstm": LSTM},
    "dataset_reader.max_characters_per_token": None,
    "validation_dataset_reader.max_characters_per_token": None,
}
TIED = {**TOKENS, "model.share_embedding_softmax": True}
FORWARD = {
    **CHARACTERS,
    "model.bidirectional": False,
    "dataset_reader.bidirectional": False,
    "validation_dataset_reader.bidirectional": False,
    "model.precision": "bfloat16",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Path:
    """Texts and their vocabulary."""
    return write_data(tmp_path_factory.mktemp("data"))


def config(folder: Path, data: Path, device: torch.device, changes: Dict[str, Any]) -> Path:
    folder.mkdir()
    text = {"train_data_path": str(data / "heldout.txt")}
    trainer = {"trainer.num_epochs": 1, "trainer.cuda_device": number_of(device)}
    return write_config(folder, data, {**text, **trainer, **changes})


def number_of(device: torch.device) -> int:
    return -1 if device.type == "cpu" else device.index


def train(path: Path) -> Dict[str, Any]:
    """Return the metrics of a run and its parameters."""
    folder = path.with_name("run")
    train_model(Params.from_file(path), str(folder))
    found = {key: value for key, value in metrics(folder).items() if "perplexity" in key}
    return {**found, **arrays_of(torch.load(folder / "best.th"))}


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: Any) -> Path:
    """The folder of a run on a GPU."""
    folder = tmp_path_factory.mktemp("trained") / "gpu"
    with gpu_for_tests() as gpu:
        train(config(folder, data, gpu.device, CHARACTERS))
    return folder / "run"


@pytest.mark.parametrize(
    "changes",
    [CHARACTERS, {**CHARACTERS, **FULL}, TOKENS, TIED, {**TIED, **FULL}, FORWARD],
    ids=["characters", "full softmax", "tokens", "tied", "tied, full softmax", "forward, bfloat16"],
)
def test_training(changes: Dict[str, Any], data: Path, tmp_path: Path) -> None:
    check_on_gpu(
        lambda device: train(config(tmp_path / device.type, data, device, changes)),
        atol=1e-2 if "model.precision" in changes else 1e-5,
    )


def test_trained_model(data: Path, trained: Path, tmp_path: Path) -> None:
    """Evaluated, used and exported on a machine without a GPU and on one that has it."""
    lines = [{"sentence": each} for each in ("w1 w0 unknown w2", "", "w3")]

    def use(device: torch.device) -> Any:
        number = number_of(device)
        found = evaluate_from_archive(str(trained), str(data / "heldout.txt"), cuda_device=number)
        predictor = Predictor.from_archive(load_archive(trained, cuda_device=number))
        export(str(trained / "model.tar.gz"), tmp_path / device.type)
        return [
            {key: value for key, value in found.items() if "perplexity" in key},
            predictor.predict_batch_json(lines),
            *(read_arrays(tmp_path / device.type / f"{n}.hdf5") for n in ("weights", "softmax")),
        ]

    check_on_gpu(use)


@pytest.mark.parametrize(
    "changes, at_most",
    [
        # The lengths, the words and the losses (2); two indices, two of words, and samples.
        (CHARACTERS, (4, 6)),
        (TIED, (3, 4)),
        ({**CHARACTERS, **FULL}, (4, 4)),
        # The rows that start from zero.
        ({**CHARACTERS, "model.state_reset": 0.4}, (4, 7)),
    ],
    ids=["characters", "tied", "full softmax", "small corpus"],
)
def test_waits_of_a_step_do_not_grow_with_it(
    changes: Dict[str, Any], at_most: Any, data: Path, tmp_path: Path, pretend_gpu: Any
) -> None:
    waits = []
    for num_steps in (3, 9):
        changes = {**changes, "dataset_reader.num_steps": num_steps}
        path = config(tmp_path / f"{num_steps}", data, pretend_gpu.device, changes)
        params = Params.from_file(path)
        vocab = Vocabulary.from_params(params["vocabulary"])
        model: Any = Model.from_params(params["model"], vocab=vocab).to(pretend_gpu.device)
        model._warn = lambda targets: None  # Of the first words of a text alone.
        reader = DatasetReader.from_params(params["dataset_reader"])
        loader = TruncatedBpttDataLoader(reader, params["train_data_path"])
        loader.index_with(vocab)
        loader.set_target_device(pretend_gpu.device)
        batches = iter(loader)
        model(**next(batches))["loss"].backward()
        batch = next(batches)
        with pretend_gpu.count() as events:
            model(**batch)["loss"].backward()
        assert_few(events, at_most[0], at_most[1])
        waits.append(events)
    assert waits[0] == waits[1]
