import errno
import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from allennlp_elmo_plugin.files.locks import open_locked
from tests.support.testing import fork


def _is_free(folder: Path) -> bool:
    try:
        with open_locked(folder / ".run.lock"):
            return True
    except BlockingIOError:
        return False


def test_one_process_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with open_locked(tmp_path / ".run.lock"):
            assert not _is_free(tmp_path)
            assert fork(lambda: os._exit(_is_free(tmp_path))) == 0
            assert not _is_free(tmp_path)  # the child's end has not released it
        assert _is_free(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    def hold() -> None:
        with open_locked(tmp_path / ".run.lock"):
            time.sleep(60)

    child = fork(hold, wait=False)
    while _is_free(tmp_path):
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert _is_free(tmp_path)


def test_waits_for_the_file_of_this_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    first = open_locked(tmp_path / "file")
    with pytest.raises(BlockingIOError, match="another process is using it"):
        open_locked(tmp_path / "file")
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
    assert (tmp_path / "finished").read_text() == "old"


def test_file_systems_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    assert _is_free(tmp_path)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/.run.lock can't be locked ([Errno 37] No locks")
