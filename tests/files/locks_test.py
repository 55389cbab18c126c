import errno
import fcntl
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from allennlp_elmo_plugin.files.locks import _LOCK_NAME as LOCK_NAME
from allennlp_elmo_plugin.files.locks import locked_folder, open_locked
from tests.support.testing import fork


def _is_free(folder: Path) -> bool:
    try:
        with locked_folder(folder, ValueError("in use")):
            return True
    except ValueError as error:
        assert str(error) == "in use"
        return False


def test_one_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with locked_folder(tmp_path, ValueError("in use")):
            assert not _is_free(tmp_path)
            assert fork(lambda: os._exit(_is_free(tmp_path))) == 0
            assert not _is_free(tmp_path)  # the child's end has not released it
        assert _is_free(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_an_error_inside_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of its own"):
        with locked_folder(tmp_path, ValueError("in use")):
            raise OSError("of its own")
    assert _is_free(tmp_path)


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("fork")
    receiver, sender = processes.Pipe(duplex=False)

    def hold() -> None:
        with locked_folder(tmp_path, ValueError("in use")):
            sender.send(None)
            time.sleep(60)

    holder = processes.Process(target=hold)
    holder.start()
    receiver.recv()
    assert not _is_free(tmp_path)
    holder.kill()
    holder.join()
    assert _is_free(tmp_path)


def test_waits(tmp_path: Path) -> None:
    first = open_locked(tmp_path / "file")
    second = []
    thread = threading.Thread(
        target=lambda: second.append(open_locked(tmp_path / "file", wait=True))
    )
    thread.start()
    thread.join(0.1)
    assert not second
    os.replace(tmp_path / "file", tmp_path / "finished")
    first.close()
    thread.join()
    assert os.path.samestat(os.fstat(second[0].fileno()), os.stat(tmp_path / "file"))


def test_the_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with open_locked(tmp_path / "file") as file:
        assert file.writable()
    assert (tmp_path / "file").read_text() == "old"


def test_file_systems_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    assert _is_free(tmp_path)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/{LOCK_NAME} can't be locked ([Errno 37] No locks")
