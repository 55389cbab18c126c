"""
AllenNLP on newer versions of torch and Python; each patch is shown to be needed.

As a script, `python compat_test.py FOLDER [MODULE]` imports MODULE (the plugin) if given, runs each
scenario, which uses AllenNLP as its users do, and prints, as JSON, "ok" or the error of each.
"""

import importlib
import io
import json
import pickle
import subprocess
import sys
import tarfile
import traceback
import warnings
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common import util as common_util
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.models import archival
from allennlp.nn.parallel import ddp_accelerator
from allennlp.training import Checkpointer, gradient_descent_trainer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.trainer import TrainerCheckpoint

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def sparse_warning(folder):
    with warnings.catch_warnings(record=True) as caught:
        torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (2,))
    assert not caught, caught[0].message


def autocast_warning(folder):
    with warnings.catch_warnings(record=True) as caught:
        with gradient_descent_trainer.amp.autocast(False):
            pass
    assert not caught, caught[0].message


def plateau_scheduler(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = LearningRateScheduler.from_params(
            Params({"type": "reduce_on_plateau", "patience": 0, "factor": 0.5, "mode": "max"}),
            optimizer=optimizer,
        )
        for metric in (2.0, 1.0):
            scheduler.step(metric)
    assert optimizer.param_groups[0]["lr"] == 0.5


def training_state(folder):
    numbers = np.float64(0.5), np.float32(0.25), np.int64(3), np.bool_(True)
    state = dict(zip("abcd", numbers), epochs_completed=1, batches_in_epoch_completed=0)
    checkpointer = Checkpointer(str(folder))
    saved = TrainerCheckpoint({"w": torch.ones(2)}, state)
    checkpointer.save_checkpoint(Mock(get_checkpoint_state=lambda: saved))
    assert checkpointer.load_checkpoint().trainer_state == state


def parameters(sparse):
    torch.manual_seed(0)
    tables = [torch.nn.Embedding(n, 3, sparse=sparse) for n in (6, 4)]
    linear = torch.nn.Linear(3, 2)
    indices = torch.tensor([5, 0, 5, 5, 2])
    (linear(tables[0](indices) + tables[1](indices % 4)) ** 2).sum().backward()
    without_gradient = torch.nn.Parameter(torch.zeros(1))
    return [tables[0].weight, without_gradient, *linear.parameters(), tables[1].weight]


def gradients(parameters):
    return [None if p.grad is None else p.grad.to_dense() for p in parameters]


def gradient_norm(folder):
    for clip in (gradient_descent_trainer.clip_grad_norm_, ddp_accelerator.clip_grad_norm_):
        for max_norm, norm_type in ((0.1, 2.0), (0.1, float("inf")), (1e6, 1.0)):
            dense, sparse = parameters(sparse=False), parameters(sparse=True)
            expected = torch.nn.utils.clip_grad_norm_(dense, max_norm, norm_type=norm_type)
            # A generator: parameters are gone over once.
            norm = clip((p for p in sparse), max_norm, norm_type)
            torch.testing.assert_close(norm, expected)
            torch.testing.assert_close(gradients(sparse), gradients(dense))
            assert sparse[0].grad.is_sparse and sparse[0].grad.is_coalesced()
        clip(sparse[0], 1e-3)
        torch.testing.assert_close(sparse[0].grad.to_dense().norm(), torch.tensor(1e-3))


def device_of_index(folder):
    for index, name in ((-1, "cpu"), (0, "cuda:0"), (2, "cuda:2")):
        device = common_util.int_to_device(index)
        assert device == torch.device(name) and common_util.int_to_device(device) is device


def worker_lock(folder):
    data_path = folder / "data.jsonl"
    data_path.write_text('{"text": "one two", "label": "1"}\n' * 3, encoding="utf-8")
    reader = DatasetReader.from_params(
        Params({"type": "text_classification_json", "tokenizer": {"type": "just_spaces"}})
    )
    common = {"batch_size": 2, "num_workers": 1, "start_method": "spawn", "quiet": True}
    # Workers that read instances, and workers that make batches.
    for n in (None, 2):
        loader = MultiProcessDataLoader(reader, str(data_path), max_instances_in_memory=n, **common)
        loader.index_with(Vocabulary(counter={"labels": {"1": 3}}))
        assert [len(batch["label"]) for batch in loader] == [2, 1]


def archive_extraction(folder):
    outside = folder / "outside.txt"
    for name in ("vocabulary/tokens.txt", str(outside)):
        with tarfile.open(folder / "model.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(b"content")
            archive.addfile(member, io.BytesIO(b"content"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with archival.extracted_archive(folder / "model.tar.gz") as extracted:
                assert Path(extracted, name.strip("/")).read_text() == "content"
    assert not outside.exists(), "an archive wrote outside of its folder"


# The error of each scenario without the plugin, and whether this machine's versions need the patch.
SCENARIOS = {
    sparse_warning: ("invariant", TORCH >= (2, 9)),
    autocast_warning: ("autocast", True),
    plateau_scheduler: ("verbose", True),
    training_state: ("Weights only load failed", True),
    gradient_norm: ("SparseCPU", TORCH < (2, 11)),
    device_of_index: ("accelerator", not torch.backends.cuda.is_built()),
    worker_lock: ("SemLock", True),
    archive_extraction: ("", sys.version_info < (3, 14)),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, subprocess_environment):
    """The outcome of each scenario, without the plugin and with it."""
    results = []
    for modules in ([], ["allennlp_elmo_plugin"]):
        folder = tmp_path_factory.mktemp("scenarios")
        command = [sys.executable, __file__, str(folder), *modules]
        captured = {"capture_output": True, "encoding": "utf-8", "timeout": 300}
        process = subprocess.run(command, env=subprocess_environment, **captured)
        assert process.returncode == 0, process.stderr
        results.append(json.loads(process.stdout.splitlines()[-1]))
    return results


IN_ANY_PROCESS = (
    plateau_scheduler,
    training_state,
    gradient_norm,
    device_of_index,
    archive_extraction,
)


@pytest.mark.parametrize("scenario", IN_ANY_PROCESS)
def test_works_with_the_plugin(scenario, tmp_path):
    scenario(tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_works_with_the_plugin_and_not_without(outcomes, scenario):
    without, with_plugin = (outcome[scenario.__name__] for outcome in outcomes)
    assert with_plugin == "ok"
    error, is_needed = SCENARIOS[scenario]
    if not is_needed:
        pytest.skip(f"torch {torch.__version__} on Python {sys.version} does not need the patch")
    assert without != "ok" and error in without


def test_other_types_in_a_checkpoint_stay_refused(tmp_path):
    torch.save({"trap": Path("x")}, tmp_path / "state.th")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "state.th")


def main(folder, *modules):
    for module in modules:
        importlib.import_module(module)
    outcomes = {}
    for scenario in SCENARIOS:
        scenario_folder = Path(folder, scenario.__name__)
        scenario_folder.mkdir()
        try:
            scenario(scenario_folder)
            outcomes[scenario.__name__] = "ok"
        except Exception as error:
            traceback.print_exc()
            outcomes[scenario.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
