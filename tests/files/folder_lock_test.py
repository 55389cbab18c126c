import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.folder_lock import LOCK_NAME, locked_folder

processes = multiprocessing.get_context("fork")


def test_one_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with locked_folder(tmp_path, "in use"):
            with pytest.raises(ConfigurationError, match="in use"):
                with locked_folder(tmp_path, "in use"):
                    pass
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_an_error_inside_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of its own"):
        with locked_folder(tmp_path, "in use"):
            raise OSError("of its own")
    with locked_folder(tmp_path, "in use"):
        pass


def _hold(folder: Path, connection: Any) -> None:
    with locked_folder(folder, "in use"):
        # As a data loader's worker, which may outlive this process.
        child = processes.Process(target=time.sleep, args=(60,))
        child.start()
        connection.send(child.pid)
        time.sleep(60)


def test_killed(tmp_path: Path) -> None:
    receiver, sender = processes.Pipe(duplex=False)
    holder = processes.Process(target=_hold, args=(tmp_path, sender))
    holder.start()
    child = receiver.recv()
    try:
        with pytest.raises(ConfigurationError, match="in use"):
            with locked_folder(tmp_path, "in use"):
                pass
        holder.kill()
        holder.join()
        os.kill(child, 0)  # still there
        with locked_folder(tmp_path, "in use"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_that_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("no locks here")

    monkeypatch.setattr("filelock.FileLock.acquire", fail)
    with locked_folder(tmp_path, "in use"):
        assert f"{tmp_path} can't be locked (no locks here)" in caplog.text
