"""The folder of a run; whole runs are in language_model_trainer_test.py."""

import fcntl
import multiprocessing
import os
import signal
import time

import allennlp.commands.train
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.training import run_folder
from allennlp_elmo_plugin.plugin.training.run_folder import train_model
from tests.support.testing import read_files

LANGUAGE_MODEL = {"model": {"type": "bidirectional_lm"}}
FINE_TUNING = {"dataset_reader": {"type": "truncated_bptt_lm"}, "model": "from_archive"}
TAGGER = {"model": "simple_tagger", "train_data_path": "truncated_bptt/bidirectional_lm.txt"}
processes = multiprocessing.get_context("fork")


@pytest.fixture
def calls(monkeypatch):
    """The arguments of calls of AllenNLP's `train_model`, and the files in the folder."""
    recorded = []

    def train(params, folder, recover, force, node_rank, packages):
        recorded.append((recover, force, node_rank, packages, sorted(os.listdir(folder))))
        params.to_file(os.path.join(folder, "config.json"))

    monkeypatch.setattr(run_folder, "_train_model", train)
    return recorded


def test_arguments_and_folders(tmp_path, calls):
    """Spawned processes import the plugin, too."""
    assert allennlp.commands.train.train_model is train_model
    run = tmp_path / "new" / "run"
    train_model(Params({}), str(run), node_rank=1, include_package=["mine"])
    train_model(Params({}), run, True)
    (tmp_path / "kept.txt").touch()
    (run / "vocabulary").mkdir()
    (run / "link").symlink_to(tmp_path)
    inode = run.stat().st_ino  # The folder may be a mount point, which can't be removed.
    train_model(Params({}), run, force=True)
    ours = "allennlp_elmo_plugin.plugin.registration"
    assert calls == [
        (False, False, 1, ["mine", ours], []),
        (True, False, 0, [ours], ["config.json"]),
        (False, False, 0, [ours], []),
    ]
    assert run.stat().st_ino == inode and (tmp_path / "kept.txt").exists()


@pytest.mark.parametrize("arguments", [{}, {"force": True}])
def test_one_process_at_a_time(tmp_path, calls, arguments):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ConfigurationError, match="another process is training in this folder"):
        train_model(Params({}), tmp_path, **arguments)
    assert calls == [] and list(read_files(tmp_path)) == ["config.json"]
    os.close(descriptor)
    for _ in range(2):  # The first call releases the lock.
        train_model(Params({}), tmp_path, **arguments)
    assert len(calls) == 2


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("config", [LANGUAGE_MODEL, FINE_TUNING, TAGGER])
@pytest.mark.parametrize("written", ["out.log", "best.th", "checkpoint.pt", "model_state_e0_b7.th"])
def test_a_failed_start(is_new, config, written, tmp_path, monkeypatch):
    """A new folder of a language model without weights is removed, nothing else."""
    folder = tmp_path / "run"
    if not is_new:
        folder.mkdir()

    def fail(params, *args):
        params.pop("model")
        (folder / written).touch()
        raise ValueError("failed")

    monkeypatch.setattr(run_folder, "_train_model", fail)
    with pytest.raises(ValueError, match="failed"):
        train_model(Params(dict(config)), folder)
    assert folder.exists() != (is_new and config is not TAGGER and written == "out.log")


def test_only_own_workers_end_with_an_error(tmp_path, monkeypatch):
    other, worker = (processes.Process(target=time.sleep, args=(1000,)) for _ in range(2))

    def train(*args):
        worker.start()
        raise ValueError("a mistake")

    monkeypatch.setattr(run_folder, "_train_model", train)
    other.start()
    with pytest.raises(ValueError, match="a mistake"):
        train_model(Params({}), tmp_path)
    assert worker.exitcode == -signal.SIGTERM and other.is_alive()
    other.kill()
    other.join()
