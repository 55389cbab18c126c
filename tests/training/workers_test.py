"""The processes of distributed training, whose end is a signal."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from allennlp_elmo_plugin.training.workers import workers_ended
from tests.support.training_runs import finish, losses, start, write_config

ONE = {"trainer.num_epochs": 1000}
TWO = {**ONE, "distributed": {"cuda_devices": [-1, -1]}}
processes = multiprocessing.get_context("fork")


def hang(is_deaf: bool, started: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else signal.SIG_DFL)
    started.set()
    time.sleep(1000)


@pytest.fixture
def running() -> Iterator[List[Any]]:
    """Processes that are killed after the test."""
    found: List[Any] = []
    yield found
    for process in found:
        process.kill()
        process.join()


def start_hanging(running: List[Any], is_deaf: bool = False, daemon: bool = False) -> Any:
    started = processes.Event()
    process = processes.Process(target=hang, args=(is_deaf, started), daemon=daemon)
    process.start()
    running.append(process)
    assert started.wait(60)
    return process


def test_only_own_workers_end(running: List[Any]) -> None:
    others = [start_hanging(running)]
    with pytest.raises(ValueError, match="a mistake"), workers_ended():
        worker = start_hanging(running)
        others.append(start_hanging(running, daemon=True))
        raise ValueError("a mistake")
    assert worker.exitcode == -signal.SIGTERM
    assert all(process.is_alive() for process in others)


def test_a_second_signal_ends_them_at_once(running: List[Any]) -> None:
    with pytest.raises(KeyboardInterrupt), workers_ended():
        process = start_hanging(running, is_deaf=True)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        raise KeyboardInterrupt
    process.join()
    assert process.exitcode == -signal.SIGKILL


def children(process: Any) -> List[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return list(map(int, path.read_text(encoding="utf-8").split()))


@pytest.fixture(params=[ONE, TWO], ids=["one process", "two processes"])
def training(data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A training that has finished an epoch, and saved its weights."""
    process = start(write_config(tmp_path, data, request.param), tmp_path / "run")
    while not list(tmp_path.glob("run/model_state_e1_b7.th")):
        assert process.is_alive(), (tmp_path / "run.output").read_text(encoding="utf-8")
        time.sleep(0.01)
    yield process
    process.kill()
    process.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_for_all", [False, True])
def test_training_stopped(training: Any, tmp_path: Path, number: int, is_for_all: bool) -> None:
    """Ctrl-C in a terminal, or the end of a job, sends a signal to all, `kill` to one."""
    ranks = children(training)
    for process in [training.pid, *(ranks if is_for_all else [])]:
        os.kill(process, number)
    printed = finish(training, tmp_path / "run", -number)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    last = printed.splitlines()[-1]
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert last == (
        f"{word}; continue with: allennlp train {tmp_path}/config.json -s {tmp_path}/run --recover"
    )
    assert "Traceback" not in printed
    assert (tmp_path / "run" / "model.tar.gz").exists() and "archiving" in printed
    # What was trained is saved.
    epoch, batch = max(losses(tmp_path / "run"))
    assert (tmp_path / "run" / f"model_state_e{epoch}_b{batch}.th").exists() or (
        tmp_path / "run" / f"model_state_e{epoch + 1}_b0.th"
    ).exists()
