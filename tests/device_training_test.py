"""Training on a GPU, and what is made of its models, give the CPU's numbers."""

import pytest
import torch
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.commands.elmo_export import export
from tests.support.pretend_gpu import check_on_gpu, gpu_for_tests
from tests.support.testing import read_arrays
from tests.support.training_runs import metrics, write_config, write_data

pytestmark = [pytest.mark.gpu, pytest.mark.in_turns(3)]

LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True}
CHARACTERS = {"model.options.lstm": LSTM, "model.options.dropout": 0.0}
FULL = {"model.num_samples": 0}
TOKENS = {f"{which}dataset_reader.max_characters_per_token": None for which in ("", "validation_")}
TOKENS["model.options"] = {"lstm": LSTM}
TIED = {**TOKENS, "model.share_embedding_softmax": True}
NUMBERS = {"cpu": -1, "cuda": 0}  # what AllenNLP calls devices


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts and their vocabulary."""
    return write_data(tmp_path_factory.mktemp("data"))


def train(folder, data, device, changes):
    """Return the metrics of a run and its parameters."""
    folder.mkdir()
    text = {"train_data_path": str(data / "heldout.txt")}
    trainer = {"trainer.num_epochs": 1, "trainer.cuda_device": NUMBERS[device.type]}
    config = write_config(folder, data, {**text, **trainer, **changes})
    train_model(Params.from_file(config), str(folder / "run"))
    perplexities = {k: v for k, v in metrics(folder / "run").items() if "perplexity" in k}
    return perplexities, torch.load(folder / "run" / "best.th")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder of a run on a GPU."""
    folder = tmp_path_factory.mktemp("trained") / "gpu"
    with gpu_for_tests() as gpu:
        train(folder, data, gpu, CHARACTERS)
    return folder / "run"


@pytest.mark.parametrize(
    "changes",
    [CHARACTERS, {**CHARACTERS, **FULL, "model.state_reset": 0.4}, TOKENS, TIED, {**TIED, **FULL}],
    ids=["characters", "states reset", "tokens", "tied", "tied, full softmax"],
)
def test_training(changes, data, tmp_path):
    check_on_gpu(lambda device: train(tmp_path / device.type, data, device, changes))


def test_trained_model(data, trained, tmp_path):
    """Evaluated, used and exported on a machine without a GPU and on one that has it."""
    lines = [{"sentence": sentence} for sentence in ("w1 w0 unknown w2", "", "w3")]

    def use(device):
        number = NUMBERS[device.type]
        scores = evaluate_from_archive(str(trained), str(data / "heldout.txt"), cuda_device=number)
        predictor = Predictor.from_archive(load_archive(trained, cuda_device=number))
        export(str(trained / "model.tar.gz"), tmp_path / device.type)
        predictions = predictor.predict_batch_json(lines)
        return [
            {key: value for key, value in scores.items() if "perplexity" in key},
            [{k: v for k, v in prediction.items() if "log" in k} for prediction in predictions],
            *(read_arrays(tmp_path / device.type / f"{n}.hdf5") for n in ("weights", "softmax")),
        ]

    check_on_gpu(use)
