"""The folder of a run under `train_model`; whole runs are in resumable_trainer_test.py."""

import fcntl
import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any, List

import allennlp.commands.train
import pytest
from allennlp.commands.train import TrainModel
from allennlp.common import Lazy, Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.training import run_folder
from allennlp_elmo_plugin.training.run_folder import TrainingLoop, is_language_model, train_model
from tests.support.testing import read_files

LANGUAGE_MODEL = {"model": {"type": "bidirectional_lm"}}
TAGGER = {"model": "simple_tagger"}
processes = multiprocessing.get_context("fork")


@pytest.fixture
def calls(monkeypatch):
    """What AllenNLP's `train_model` is called with, and the files that it finds."""
    found: List[Any] = []

    def train(params, folder, recover, force, node_rank, packages):
        found.append((recover, force, node_rank, packages, sorted(os.listdir(folder))))
        params.to_file(os.path.join(folder, "config.json"))

    monkeypatch.setattr(run_folder, "_train_model", train)
    return found


def test_arguments(tmp_path, calls):
    """Processes that are spawned need the plugin, too."""
    assert allennlp.commands.train.train_model is train_model
    ours = "allennlp_elmo_plugin.registration"
    train_model(Params({}), str(tmp_path / "new" / "run"), node_rank=1, include_package=["mine"])
    train_model(Params({}), tmp_path / "new" / "run", True)
    assert calls == [
        (False, False, 1, ["mine", ours], []),
        (True, False, 0, [ours], ["config.json"]),
    ]


def test_force(tmp_path, calls):
    (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    (tmp_path / "run" / "vocabulary" / "tokens.txt").touch()
    (tmp_path / "kept.txt").touch()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    # As a mount point, the folder itself can't be removed.
    inode = (tmp_path / "run").stat().st_ino
    train_model(Params({}), tmp_path / "run", force=True)
    assert calls[0][:2] == (False, False) and calls[0][-1] == []
    assert (tmp_path / "run").stat().st_ino == inode and (tmp_path / "kept.txt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "already exists"),
        ({"recover": True}, "doesn't contain a config.json"),
        ({"recover": True, "force": True}, "both force and recover"),
    ],
)
def test_refused_folders_stay_as_they_are(tmp_path, arguments, message):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match=message):
        train_model(Params(dict(LANGUAGE_MODEL)), tmp_path, **arguments)
    assert list(read_files(tmp_path)) == ["thesis.tex"]


@pytest.mark.parametrize("arguments", [{}, {"recover": True}, {"force": True}])
def test_one_process_at_a_time(tmp_path, calls, arguments):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    n_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigurationError, match="another process is training in this folder"):
        train_model(Params({}), tmp_path, **arguments)
    assert calls == [] and list(read_files(tmp_path)) == ["config.json"]
    assert len(os.listdir("/proc/self/fd")) <= n_open  # Garbage of other tests may be collected.
    os.close(descriptor)
    for _ in range(2):  # The first one gives the lock back.
        train_model(Params({}), tmp_path, **arguments)
    assert len(calls) == 2


def test_without_locks(tmp_path, calls, monkeypatch, caplog):
    def fail(*args):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", fail)
    train_model(Params({}), tmp_path)
    assert len(calls) == 1 and "can't be locked (no locks here)" in caplog.text


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("config", [LANGUAGE_MODEL, TAGGER])
@pytest.mark.parametrize("written", ["out.log", "best.th", "model_state_e0_b7.th"])
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
    assert folder.exists() != (is_new and config is LANGUAGE_MODEL and written == "out.log")


@pytest.mark.parametrize("is_parallel", [False, True])
@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("evaluates", [False, True])
@pytest.mark.parametrize("loader", [None, "batches"])
def test_all_processes_evaluate(is_parallel, is_ours, evaluates, loader, monkeypatch):
    model: Any = SimpleNamespace(**({"training_state": dict} if is_ours else {}))
    trainer: Any = SimpleNamespace(train=lambda: {"loss": 1.0}, cuda_device=-1)
    monkeypatch.setattr(run_folder, "is_distributed", lambda: is_parallel)
    monkeypatch.setattr(run_folder, "evaluate", lambda *given: {"given": given})
    loop = TrainingLoop("", model, trainer, loader, evaluates, "weight")
    metrics = loop.run()
    if is_parallel and is_ours and evaluates and loader:
        assert metrics == {"loss": 1.0, "test_given": (model, loader, -1, "weight")}
        assert loop.evaluation_data_loader is None  # AllenNLP doesn't evaluate again.
    else:
        assert metrics == {"loss": 1.0} and loop.evaluation_data_loader == loader


@pytest.mark.parametrize("file", ["lm_tokens.txt", "tokens.txt"])
@pytest.mark.parametrize("weights", ["best.th", "out.log"])
def test_the_vocabulary_of_the_run(file, weights, tmp_path, monkeypatch):
    """It is used if a language model's weights belong to it."""
    write_vocabulary_folder(tmp_path / "vocabulary", ["<S>", "</S>", "<UNK>", "word"])
    (tmp_path / "vocabulary" / "lm_tokens.txt").rename(tmp_path / "vocabulary" / file)
    (tmp_path / weights).touch()
    given: Any = Lazy(Vocabulary)
    create = classmethod(lambda cls, folder, vocabulary: (folder, vocabulary))
    monkeypatch.setattr(TrainModel, "from_partial_objects", create)
    folder, found = TrainingLoop.from_partial_objects(str(tmp_path), vocabulary=given)  # type: ignore
    assert folder == str(tmp_path)
    if (file, weights) == ("lm_tokens.txt", "best.th"):
        assert found.construct(instances=[]).get_token_index("word", "lm_tokens") == 3
    else:
        assert found is given


def test_is_language_model():
    reader = {"type": "truncated_bptt_lm"}
    assert is_language_model(LANGUAGE_MODEL) and is_language_model({"model": "bidirectional_lm"})
    assert is_language_model({"dataset_reader": reader, "model": "from_archive"})
    assert not is_language_model({"model": "simple_tagger"})


@pytest.fixture
def running():
    """Processes that are killed after the test."""
    found: List[Any] = []
    yield found
    for process in found:
        process.kill()
        process.join()


def start_hanging(running, is_deaf=False):
    def hang():
        signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else signal.SIG_DFL)
        started.set()
        time.sleep(1000)

    started = processes.Event()
    running.append(processes.Process(target=hang))
    running[-1].start()
    assert started.wait(60)


def test_only_own_workers_end(running, tmp_path, monkeypatch):
    def train(*args):
        start_hanging(running)
        raise ValueError("a mistake")

    start_hanging(running)
    monkeypatch.setattr(run_folder, "_train_model", train)
    with pytest.raises(ValueError, match="a mistake"):
        train_model(Params({}), tmp_path)
    before, worker = running
    assert worker.exitcode == -signal.SIGTERM and before.is_alive()


def test_a_second_signal_ends_them_at_once(running, tmp_path, monkeypatch):
    def train(*args):
        start_hanging(running, is_deaf=True)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder, "_train_model", train)
    with pytest.raises(KeyboardInterrupt):
        train_model(Params({}), tmp_path)
    running[0].join()
    assert running[0].exitcode == -signal.SIGKILL
