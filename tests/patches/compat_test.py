"""AllenNLP on newer versions of torch and Python; each patch is shown to be needed."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from allennlp.common import Tqdm
from allennlp.common import util as common_util
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import gradient_descent_trainer
from allennlp.training.learning_rate_schedulers import ReduceOnPlateauLearningRateScheduler

from allennlp_elmo_plugin import patches
from tests.support import compat_scenarios

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
def outcomes(tmp_path_factory, subprocess_environment):
    """The outcome of each scenario, without the plugin and with it."""
    found = []
    for modules in ([], ["allennlp_elmo_plugin"]):
        folder = tmp_path_factory.mktemp("scenarios")
        process = subprocess.run(
            [sys.executable, compat_scenarios.__file__, str(folder), *modules],
            env=subprocess_environment,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        found.append(json.loads(process.stdout.splitlines()[-1]))
    return found


@pytest.mark.parametrize("scenario", PATCHES)
def test_works_with_the_plugin_and_not_without(outcomes, scenario):
    without, with_plugin = (each[scenario] for each in outcomes)
    assert with_plugin == "ok"
    error, is_needed = PATCHES[scenario]
    if not is_needed:
        pytest.skip(f"torch {torch.__version__} on Python {sys.version} does not need the patch")
    assert without != "ok" and error in without


def test_applying_twice_changes_nothing():
    def patched():
        clips = [module.clip_grad_norm_ for module in (gradient_descent_trainer, ddp_accelerator)]
        init = ReduceOnPlateauLearningRateScheduler.__init__
        return [*clips, init, common_util.int_to_device, Tqdm.get_lock()]

    before = patched()
    patches.apply()
    assert all(now is then for now, then in zip(patched(), before))


def test_other_types_in_a_checkpoint_stay_refused(tmp_path):
    torch.save({"trap": Path("x")}, tmp_path / "state.th")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "state.th")


def parameters(sparse):
    torch.manual_seed(0)
    tables = [torch.nn.Embedding(n, 3, sparse=sparse) for n in (6, 4)]
    linear = torch.nn.Linear(3, 2)
    indices = torch.tensor([5, 0, 5, 5, 2])
    (linear(tables[0](indices) + tables[1](indices % 4)) ** 2).sum().backward()
    without_gradient = torch.nn.Parameter(torch.zeros(1))
    return [tables[0].weight, without_gradient, *linear.parameters(), tables[1].weight]


@pytest.mark.parametrize("max_norm, norm_type", [(0.1, 2.0), (0.1, float("inf")), (1e6, 1.0)])
def test_sparse_gradients_are_clipped_as_dense_ones(max_norm, norm_type):
    clip = gradient_descent_trainer.clip_grad_norm_
    dense, sparse = parameters(sparse=False), parameters(sparse=True)
    want = torch.nn.utils.clip_grad_norm_(dense, max_norm, norm_type=norm_type)
    # A generator: parameters are gone over once.
    torch.testing.assert_close(clip((p for p in sparse), max_norm, norm_type), want)
    assert sparse[0].grad.is_sparse and sparse[0].grad.is_coalesced() and sparse[1].grad is None
    for ours, theirs in zip(sparse, dense):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad.to_dense(), theirs.grad)
    clip(sparse[0], 1e-3)
    torch.testing.assert_close(sparse[0].grad.to_dense().norm(), torch.tensor(1e-3))


def test_devices_of_indices():
    for index, name in ((-1, "cpu"), (0, "cuda:0"), (2, "cuda:2")):
        device = common_util.int_to_device(index)
        assert device == torch.device(name) and common_util.int_to_device(device) is device
