import errno
import os

import filelock

from allennlp_elmo_plugin.files.locks import locked
from tests.support.testing import fork


def is_free(path):
    try:
        with locked(path):
            return True
    except BlockingIOError as error:
        assert "another process is using it" in str(error)
        return False


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "new" / ".lock"
    for _ in range(2):
        with locked(path):
            assert not is_free(path)
            assert fork(lambda: os._exit(is_free(path))) == 0
            assert not is_free(path)  # the child's end has not released it
        assert is_free(path)


def test_file_systems_without_locks(tmp_path, monkeypatch, caplog):
    def fail(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "_acquire", fail)
    (tmp_path / ".lock").touch()
    assert is_free(tmp_path / ".lock")
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path / '.lock'} can't be locked ([Errno {errno.ENOLCK}] No")
