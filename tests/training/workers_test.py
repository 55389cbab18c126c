"""The processes of distributed training, whose end is a signal."""

import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from allennlp.commands import train
from allennlp.training.callbacks import TrainerCallback

from allennlp_elmo_plugin.training import workers
from allennlp_elmo_plugin.training.workers import workers_ended
from tests.support.testing import fork
from tests.support.training_runs import finish, start, write_config
from tests.support.training_runs import train as run

TWO = {"distributed": {"cuda_devices": [-1, -1]}, "trainer.num_epochs": 1000}
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


def test_a_worker_that_hangs_is_killed(running: List[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SECONDS", 0.2)
    with pytest.raises(KeyboardInterrupt), workers_ended():
        started = [start_hanging(running, is_deaf) for is_deaf in (True, False)]
        raise KeyboardInterrupt
    assert [process.exitcode for process in started] == [-signal.SIGKILL, -signal.SIGTERM]


def test_a_second_signal_kills_at_once(running: List[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    start_time = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers_ended():
        worker = start_hanging(running, is_deaf=True)
        monkeypatch.setattr(worker, "terminate", timer.start)
        raise KeyboardInterrupt
    assert worker.exitcode == -signal.SIGKILL
    assert time.monotonic() - start_time < workers._SECONDS


def test_is_allennlps_function() -> None:
    assert train._train_worker is workers.train_worker
    # Workers that are spawned import the plugin with it.
    assert pickle.loads(pickle.dumps(train._train_worker)) is workers.train_worker


@pytest.mark.parametrize("n_line", range(3))
def test_another_signal_in_the_handler(n_line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(world_size: int) -> None:
        handler: Any = signal.getsignal(signal.SIGINT)
        lines = itertools.count()

        def send_another(frame: Any, event: str, _: Any) -> Any:
            if event == "line" and next(lines) == n_line:
                handler(signal.SIGTERM, None)
            return send_another

        sys.settrace(lambda frame, *_: send_another if frame.f_code is handler.__code__ else None)
        handler(signal.SIGINT, None)
        os._exit(3)  # Nothing was raised.

    monkeypatch.setattr(workers, "_train_worker", train)
    assert workers.received == []
    assert fork(lambda: workers.train_worker(world_size=2)) in (signal.SIGINT, signal.SIGTERM)


def children(process: Any) -> List[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return list(map(int, path.read_text(encoding="utf-8").split()))


def signal_children(process: Any, number: int) -> None:
    with suppress(FileNotFoundError, ProcessLookupError):  # The process, or a pass, has ended.
        for child in children(process):
            os.kill(child, number)


@pytest.fixture
def training(data: Path, tmp_path: Path) -> Iterator[Any]:
    """A training of two processes that has finished an epoch, and saved its weights."""
    process = start(write_config(tmp_path, data, TWO), tmp_path / "run")
    while not list(tmp_path.glob("run/model_state_e1_b7.th")):
        assert process.is_alive(), (tmp_path / "run.output").read_text(encoding="utf-8")
        time.sleep(0.01)
    assert len(children(process)) == 2
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
        f"{word}; to go on: allennlp train {tmp_path}/config.json -s {tmp_path}/run --recover"
    )
    assert "Traceback" not in printed
    assert (tmp_path / "run" / "model.tar.gz").exists() and "archiving" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_worker_stopped(training: Any, tmp_path: Path, number: signal.Signals) -> None:
    """The training isn't taken for a complete one."""
    os.kill(children(training)[1], number)
    printed = finish(training, tmp_path / "run", 1)
    assert "terminated with signal" in printed or "Lost the connection to rank 1" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_data_loader_in_a_process(data: Path, tmp_path: Path, number: int) -> None:
    """It gets the signal, too, and says nothing."""
    changes = {"trainer.num_epochs": 1000, "data_loader.num_workers": 1}
    process = start(write_config(tmp_path, data, changes), tmp_path / "run")
    while not list(tmp_path.glob("run/model_state_e1_b7.th")):
        assert process.is_alive(), (tmp_path / "run.output").read_text(encoding="utf-8")
        time.sleep(0.01)
    for pid in [process.pid, *children(process)]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    printed = finish(process, tmp_path / "run", -number)
    assert "Traceback" not in printed, printed
    assert "; to go on: " in printed.splitlines()[-1]


def test_data_loader_whose_process_is_killed(data: Path, tmp_path: Path) -> None:
    changes = {"trainer.num_epochs": 1000, "data_loader.num_workers": 1}
    process = start(write_config(tmp_path, data, changes), tmp_path / "run")
    while not list(tmp_path.glob("run/model_state_e1_b7.th")):
        assert process.is_alive(), (tmp_path / "run.output").read_text(encoding="utf-8")
        time.sleep(0.01)
    while process.is_alive():  # That of a pass that has just been read isn't needed any more.
        signal_children(process, signal.SIGKILL)
    printed = finish(process, tmp_path / "run", 1)
    assert "Traceback" not in printed, printed
    assert printed.splitlines()[-1].startswith("error: The data loader's process ")


class PressCtrlC:
    """Interrupts the process that pickles it."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)


class PressCtrlCInCheckpoint(TrainerCallback):
    """Interrupts the first process while it saves the state of the trainer, the third time."""

    n_saves = 0

    def state_dict(self) -> Any:
        self.n_saves += 1
        return {"last": PressCtrlC()} if self.n_saves == 3 else {}

    def load_state_dict(self, state_dict: Any) -> None:
        self.n_saves = 3  # not in the recovered run


def test_interrupted_while_a_checkpoint_is_written(data: Path, tmp_path: Path) -> None:
    callback = f"{__name__}.{PressCtrlCInCheckpoint.__name__}"
    changes = {**TWO, "trainer.num_epochs": 1, "trainer.callbacks": [callback]}
    process = start(write_config(tmp_path, data, changes), tmp_path / "run")
    process.join(300)
    assert process.exitcode not in (0, None)
    checkpoints = sorted(path.name for path in tmp_path.glob("run/*_state_*.th"))
    assert [name.split("_b")[1] for name in checkpoints] == ["14.th", "7.th"] * 2
    run(tmp_path / "config.json", tmp_path / "run")
