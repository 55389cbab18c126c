import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files import locks
from allennlp_elmo_plugin.files.locks import LOCK_NAME, locked_folder, open_locked
from allennlp_elmo_plugin.files.whole_file import whole_file
from tests.support.testing import fork

processes = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _no_warnings_before() -> None:
    locks._warn.cache_clear()


def _is_free(folder: Path) -> bool:
    try:
        with locked_folder(folder, ConfigurationError("in use")):
            return True
    except ConfigurationError as error:
        assert str(error) == "in use"
        return False


def test_one_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with locked_folder(tmp_path, ConfigurationError("in use")):
            assert not _is_free(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_by_whatever_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run [a]*").mkdir()
    (tmp_path / "link").symlink_to("run [a]*")
    monkeypatch.chdir(tmp_path)
    names = [tmp_path / "run [a]*", Path("run [a]*"), Path("link"), Path("link/../run [a]*")]
    for name in names:
        with locked_folder(name, ConfigurationError("in use")):
            assert not any(map(_is_free, names))
        assert all(map(_is_free, names))


def test_threads_and_processes(tmp_path: Path) -> None:
    found = []
    with locked_folder(tmp_path, ConfigurationError("in use")):
        thread = threading.Thread(target=lambda: found.append(_is_free(tmp_path)))
        thread.start()
        thread.join()
        assert found == [False]
        # Forked, it has the handle of this one, but not its lock.
        assert fork(lambda: os._exit(_is_free(tmp_path))) == 0
        assert not _is_free(tmp_path)  # the child's end has not released it


def test_an_error_inside_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of its own"):
        with locked_folder(tmp_path, ConfigurationError("in use")):
            raise OSError("of its own")
    assert _is_free(tmp_path)


def _lock_folder(folder: Path) -> Any:
    lock = locked_folder(folder, ConfigurationError("in use"))
    lock.__enter__()
    return lock


def _write_file(folder: Path) -> Any:
    writing = whole_file(folder / "file")
    writing.__enter__()
    return writing


def _hold(lock: Callable[[Path], Any], folder: Path, connection: Any) -> None:
    held = lock(folder)
    # As a data loader's worker, which may outlive this process.
    child = processes.Process(target=time.sleep, args=(60,))
    child.start()
    connection.send(child.pid)
    time.sleep(60)
    del held


@pytest.mark.parametrize("lock", [_lock_folder, _write_file])
def test_killed(lock: Callable[[Path], Any], tmp_path: Path) -> None:
    receiver, sender = processes.Pipe(duplex=False)
    holder = processes.Process(target=_hold, args=(lock, tmp_path, sender))
    holder.start()
    child = receiver.recv()
    try:
        with pytest.raises((BlockingIOError, ConfigurationError)):
            lock(tmp_path)
        holder.kill()
        holder.join()
        os.kill(child, 0)  # still there
        lock(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_process_leaves_its_parents_files_alone(tmp_path: Path) -> None:
    parent = os.getpid()
    try:
        with whole_file(tmp_path / "file") as staged:
            Path(staged).write_text("new", encoding="utf-8")
            child = os.fork()
            if child == 0:
                raise SystemExit  # through the end of the block
            os.waitpid(child, 0)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"


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


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_locked(tmp_path / "file", create=False)
    with pytest.raises(FileNotFoundError):
        open_locked(tmp_path / "folder" / "file")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_file_systems_without_locks(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    (tmp_path / LOCK_NAME).touch()  # of a process that was killed
    for _ in range(2):
        with locked_folder(tmp_path, ConfigurationError("in use")):
            pass
    (message,) = caplog.messages
    assert message.startswith(f"Files in {tmp_path} can't be locked (")


def test_network_shares_that_say_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fcntl, "flock", fail)
    assert not _is_free(tmp_path)
