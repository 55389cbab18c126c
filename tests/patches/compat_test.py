"""AllenNLP on newer versions of torch and Python; each patch is shown to be needed."""

import copy
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params, Tqdm
from allennlp.common import util as common_util
from allennlp.models import BasicClassifier, Model
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import gradient_descent_trainer
from allennlp.training import util as training_util
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin import patches

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
# The error of each scenario without the plugin, and whether this machine's versions need the patch.
PATCHES = {
    "sparse_warning": ("invariant", TORCH >= (2, 9)),
    "autocast_warning": ("autocast", True),
    "plateau_scheduler": ("verbose", True),
    "training_state": ("Weights only load failed", True),
    "gradient_norm": ("SparseCPU", TORCH < (2, 11)),
    "device_of_index": ("accelerator", not torch.backends.cuda.is_built()),
    "worker_lock": ("SemLock", True),
    "archive_extraction": ("", sys.version_info < (3, 14)),
}


@pytest.fixture(scope="module")
def run_scenarios(tmp_path_factory: Any, subprocess_environment: Dict[str, str]) -> Any:
    outcomes: Dict[Any, Dict[str, str]] = {}

    def run(*modules: str) -> Dict[str, str]:
        if modules not in outcomes:
            script = Path(__file__).parents[1] / "support" / "compat_scenarios.py"
            folder = tmp_path_factory.mktemp("scenarios")
            process = subprocess.run(
                [sys.executable, str(script), str(folder), *modules],
                env=subprocess_environment,
                capture_output=True,
                encoding="utf-8",
                timeout=300,
            )
            assert process.returncode == 0, process.stderr
            outcomes[modules] = json.loads(process.stdout.splitlines()[-1])
        return outcomes[modules]

    return run


@pytest.mark.parametrize("scenario", PATCHES)
def test_works_with_the_plugin_and_not_without(run_scenarios: Any, scenario: str) -> None:
    assert run_scenarios("allennlp_elmo_plugin")[scenario] == "ok"
    error, is_needed = PATCHES[scenario]
    outcome = run_scenarios()[scenario]
    if not is_needed:
        pytest.skip(f"torch {torch.__version__} on Python {sys.version} does not need the patch")
    assert outcome != "ok" and error in outcome


@Model.register("classifier_with_numpy_metric")
class ClassifierWithNumpyMetric(BasicClassifier):
    """Many metrics give NumPy scalars; this one does so without a dependency."""

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        return {"score": np.float64(super().get_metrics(reset)["accuracy"])}


def test_a_task_model_trains_and_recovers(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "a" * i, "label": str(i % 2)}) for i in range(1, 9)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    embedder = {"type": "embedding", "embedding_dim": 4, "sparse": True}
    config = {
        "dataset_reader": {
            "type": "text_classification_json",
            "tokenizer": {"type": "just_spaces"},
        },
        "train_data_path": str(tmp_path / "data.jsonl"),
        "validation_data_path": str(tmp_path / "data.jsonl"),
        "model": {
            "type": "classifier_with_numpy_metric",
            "text_field_embedder": {"token_embedders": {"tokens": embedder}},
            "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 4},
        },
        "data_loader": {"batch_size": 4},
        "trainer": {
            "num_epochs": 2,
            "cuda_device": -1,
            "grad_norm": 1.0,
            "validation_metric": "+score",
            "optimizer": {"type": "sgd", "lr": 0.1},
            "learning_rate_scheduler": {"type": "reduce_on_plateau", "mode": "max"},
        },
    }
    output = tmp_path / "output"
    train_model(Params(copy.deepcopy(config)), str(output))
    # As if it had been interrupted in the second epoch.
    for path in [*output.glob("*_state_e2_*.th"), *output.glob("metrics*.json")]:
        path.unlink()
    train_model(Params(config), str(output), recover=True)
    assert json.loads((output / "metrics.json").read_text(encoding="utf-8"))["epoch"] == 1
    assert [path.name for path in output.glob("metrics_epoch_*")] == ["metrics_epoch_1.json"]


def test_applying_twice_changes_nothing() -> None:
    def patched() -> List[Any]:
        modules = (gradient_descent_trainer, ddp_accelerator, training_util)
        return [
            ReduceOnPlateauLearningRateScheduler.__init__,
            *(module.clip_grad_norm_ for module in modules),
            common_util.int_to_device,
            Tqdm.get_lock(),
        ]

    before = patched()
    patches.apply()
    assert all(now is then for now, then in zip(patched(), before))


def test_other_types_in_a_checkpoint_stay_refused() -> None:
    buffer = io.BytesIO()
    torch.save({"trap": Path("x")}, buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(buffer)


def parameters(sparse: bool) -> List[Any]:
    torch.manual_seed(0)
    table = torch.nn.Embedding(6, 3, sparse=sparse)
    other_table = torch.nn.Embedding(4, 3, sparse=sparse)
    linear = torch.nn.Linear(3, 2)
    indices = torch.tensor([5, 0, 5, 5, 2])
    (linear(table(indices) + other_table(indices % 4)) ** 2).sum().backward()
    without_gradient = torch.nn.Parameter(torch.zeros(1))
    return [table.weight, without_gradient, *linear.parameters(), other_table.weight]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_sparse_gradients_are_clipped_as_dense_ones(norm_type: float, max_norm: float) -> None:
    clip: Any = gradient_descent_trainer.clip_grad_norm_
    dense, sparse = parameters(sparse=False), parameters(sparse=True)
    want = torch.nn.utils.clip_grad_norm_(dense, max_norm, norm_type=norm_type)
    # A generator: parameters are gone over once.
    got = clip((p for p in sparse), max_norm, norm_type)
    torch.testing.assert_close(got, want)
    assert sparse[0].grad.is_sparse and sparse[0].grad.is_coalesced() and sparse[1].grad is None
    for ours, theirs in zip(sparse, dense):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad.to_dense(), theirs.grad)
    clip(sparse[0], 1e-3)
    torch.testing.assert_close(sparse[0].grad.to_dense().norm(), torch.tensor(1e-3))
    sparse[0].grad = sparse[0].grad * float("inf")
    with pytest.raises(RuntimeError, match="non-finite"):
        clip(sparse, 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("index, name", [(-1, "cpu"), (0, "cuda:0"), (2, "cuda:2")])
def test_devices_of_indices(index: int, name: str) -> None:
    device = common_util.int_to_device(index)
    assert device == torch.device(name) and common_util.int_to_device(device) is device
