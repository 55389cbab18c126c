import copy
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params, Tqdm
from allennlp.common import util as common_util
from allennlp.models import BasicClassifier, Model
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import gradient_descent_trainer, trainer
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin.patches import compat

PLUGIN = "allennlp_elmo_plugin"


def _torch_rejects_sparse_gradients() -> bool:
    parameter = torch.nn.Embedding(2, 1, sparse=True)
    parameter(torch.tensor([0])).sum().backward()
    try:
        torch.nn.utils.clip_grad_norm_(parameter.parameters(), 1.0)
    except NotImplementedError:
        return True
    return False


def _torch_has_no_device_of_index() -> bool:
    try:
        torch.device(0)
    except RuntimeError:
        return True
    return False


def _torch_warns_of_sparse_invariants() -> bool:
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)


# The scenario of each patch, whether this machine's versions need it, and the error without it.
PATCHES = [
    ("sparse_warning", _torch_warns_of_sparse_invariants(), "invariant"),
    ("autocast_warning", True, "autocast"),
    ("plateau_scheduler", True, "verbose"),
    ("training_state", True, "Weights only load failed"),
    ("gradient_norm", _torch_rejects_sparse_gradients(), "SparseCPU"),
    ("device_of_index", _torch_has_no_device_of_index(), "accelerator"),
    ("worker_lock", True, "SemLock"),
    ("archive_extraction", True, ""),
]


@pytest.fixture(scope="module")
def run_scenarios(tmp_path_factory: Any, subprocess_environment: Dict[str, str]) -> Any:
    outcomes: Dict[Tuple[str, ...], Dict[str, str]] = {}

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


@pytest.mark.parametrize("scenario", [patch[0] for patch in PATCHES])
def test_works_with_the_plugin(run_scenarios: Any, scenario: str) -> None:
    assert run_scenarios(PLUGIN)[scenario] == "ok"


@pytest.mark.parametrize("scenario, needed, error", PATCHES)
def test_patch_is_needed(run_scenarios: Any, scenario: str, needed: bool, error: str) -> None:
    if not needed:
        pytest.skip(
            f"torch {torch.__version__} on Python {sys.version.split()[0]} does not need the patch"
        )
    outcome = run_scenarios()[scenario]
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


def test_apply_twice_changes_nothing() -> None:
    def patched() -> List[Any]:
        return [
            ReduceOnPlateauLearningRateScheduler.__init__,
            gradient_descent_trainer.clip_grad_norm_,
            ddp_accelerator.clip_grad_norm_,
            common_util.int_to_device,
            Tqdm.get_lock,
        ]

    before = patched()
    compat.apply()
    assert all(now is then for now, then in zip(patched(), before))


class TestSafeGlobals:
    def test_other_types_stay_refused(self) -> None:
        buffer = io.BytesIO()
        torch.save({"trap": Path("x")}, buffer)
        buffer.seek(0)
        with pytest.raises(pickle.UnpicklingError):
            torch.load(buffer)


class TestGradientNorm:
    @staticmethod
    def _parameters(sparse: bool) -> List[torch.nn.Parameter]:
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 3, sparse=sparse)
        other_table = torch.nn.Embedding(4, 3, sparse=sparse)
        linear = torch.nn.Linear(3, 2)
        indices = torch.tensor([5, 0, 5, 5, 2])
        hidden = table(indices) + other_table(indices % 4)
        (linear(hidden) ** 2).sum().backward()
        without_gradient = torch.nn.Parameter(torch.zeros(1))
        return [table.weight, without_gradient, *linear.parameters(), other_table.weight]

    @staticmethod
    def _dense(parameters: List[torch.nn.Parameter]) -> List[Optional[torch.Tensor]]:
        gradients = [parameter.grad for parameter in parameters]
        return [g.to_dense() if g is not None and g.is_sparse else g for g in gradients]

    @pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
    @pytest.mark.parametrize("max_norm", [0.1, 1e6])
    def test_equals_dense(self, norm_type: float, max_norm: float) -> None:
        dense, sparse = self._parameters(sparse=False), self._parameters(sparse=True)
        assert not sparse[0].grad.is_coalesced()
        want = torch.nn.utils.clip_grad_norm_(dense, max_norm, norm_type=norm_type)
        # A generator: parameters are gone over once.
        got = compat.clip_grad_norm_((p for p in sparse), max_norm, norm_type=norm_type)
        torch.testing.assert_close(got, want)
        assert sparse[0].grad.is_sparse and sparse[0].grad.is_coalesced()
        for ours, theirs in zip(self._dense(sparse), self._dense(dense)):
            if ours is None or theirs is None:
                assert ours is theirs
            else:
                torch.testing.assert_close(ours, theirs)

    def test_a_single_parameter(self) -> None:
        parameter = self._parameters(sparse=True)[0]
        compat.clip_grad_norm_(parameter, 0.5)
        torch.testing.assert_close(parameter.grad.to_dense().norm(), torch.tensor(0.5))

    def test_error_if_nonfinite_leaves_gradients(self) -> None:
        parameters = self._parameters(sparse=True)
        parameters[0].grad = parameters[0].grad * float("inf")
        before = self._dense(parameters)[2].clone()
        with pytest.raises(RuntimeError, match="non-finite"):
            compat.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        torch.testing.assert_close(self._dense(parameters)[2], before)

    def test_is_what_the_trainer_calls(self) -> None:
        assert gradient_descent_trainer.clip_grad_norm_ is compat.clip_grad_norm_


class TestDeviceOfIndex:
    @pytest.mark.parametrize("index, name", [(-1, "cpu"), (0, "cuda:0"), (2, "cuda:2")])
    def test_indices(self, index: int, name: str) -> None:
        assert compat.int_to_device(index) == torch.device(name)
        assert trainer.int_to_device(index) == torch.device(name)

    def test_device(self) -> None:
        device = torch.device("cpu")
        assert compat.int_to_device(device) is device
