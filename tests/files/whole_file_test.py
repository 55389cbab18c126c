"""Files that appear whole or not at all."""

import errno
import os
import signal
import stat
from pathlib import Path
from typing import Any, Callable, Iterator

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.files.whole_file import LateErrorFile, Staging, whole_file
from tests.support.testing import fork, limit_file_size


@pytest.fixture(autouse=True)
def _leaves_no_staging(tmp_path: Path) -> Iterator[None]:
    yield
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")]


def write(path: Any, text: str) -> None:
    with whole_file(path) as staged, open(staged, "w", encoding="utf-8") as file:
        file.write(text)


def test_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "old")
    with whole_file(path) as staged:
        Path(staged).write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
        assert tmp_path in Path(staged).parents  # so that it is on the same disk
    assert path.read_text(encoding="utf-8") == "new"


def test_the_name_of_the_lock(tmp_path: Path) -> None:
    write(tmp_path / "lock", "text")
    assert (tmp_path / "lock").read_text(encoding="utf-8") == "text"


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "file", "old")
    for name in ("file", "other"):
        with pytest.raises(KeyboardInterrupt):
            with whole_file(tmp_path / name) as staged:
                Path(staged).write_text("new", encoding="utf-8")
                raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "old"


def test_is_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    fsync, replace = os.fsync, os.replace

    def note(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        events.append(f"sync {kind}")
        fsync(descriptor)

    def rename(source: Any, target: Any) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", rename)
    write(tmp_path / "file", "new")
    assert events == ["sync file", "rename", "sync folder"]


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_any_new_file(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "file", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other", encoding="utf-8")
    for name, target in (("to_file", "other"), ("to_folder", "."), ("to_nothing", "missing")):
        (tmp_path / name).symlink_to(target)
        write(tmp_path / name, "new")
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text(encoding="utf-8") == "new"
    assert (tmp_path / "other").read_text(encoding="utf-8") == "other"


@pytest.mark.parametrize("name", ["naïve 東京", "-", "a b", "x" * 200, ".hidden", "\n"])
def test_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(name, "new")  # relative
    assert (tmp_path / name).read_text(encoding="utf-8") == "new"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path, error, place in (
        (tmp_path / "missing" / "file", FileNotFoundError, "missing"),
        (tmp_path / "file" / "file", FileNotFoundError, "file"),
        (tmp_path / "folder", IsADirectoryError, "folder"),
    ):
        with pytest.raises(error) as raised:
            write(path, "new")
        assert raised.value.filename == str(tmp_path / place)


def test_devices_and_pipes_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        with pytest.raises(OSError, match=f"is a device or a pipe.*/{name}'"):
            write(tmp_path / name, "new")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert (tmp_path / "null").is_symlink()


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, *arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(PermissionError, match="cannot write: Permission denied.*/file'"):
        write(tmp_path / "file", "new")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file(path) as staged:
        Path(staged).write_text("first", encoding="utf-8")
        with pytest.raises(BlockingIOError, match="another process is writing it.*/file'"):
            write(path, "second")
        assert fork(lambda: write(path, "second")) != 0
        write(tmp_path / "another file", "new")
    assert path.read_text(encoding="utf-8") == "first"


def test_killed_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = {"old": "old" * 1000, "new": "new" * 1000}
    for moment in range(1000):
        path.write_text(texts["old"], encoding="utf-8")
        killed = fork(lambda: write(path, texts["new"]), kill_at=moment) == signal.SIGKILL
        assert path.read_text(encoding="utf-8") in texts.values()
        write(path, "again")
        assert [item.name for item in tmp_path.iterdir()] == ["file"]
        if not killed:
            break
    assert moment > 5


def test_a_live_staging_folder_is_not_removed(tmp_path: Path) -> None:
    with Staging(tmp_path / ".x.partial", "x") as first:
        (first.path / "work").touch()
        with pytest.raises(BlockingIOError):
            with Staging(tmp_path / ".x.partial", "x"):
                pass
        assert (first.path / "work").exists()


def write_hdf5(file: Any) -> None:
    with h5py.File(file, "w") as hdf5:
        for name in range(50):
            hdf5.create_dataset(str(name), data=np.random.rand(1000))


@pytest.mark.parametrize(
    "write_to",
    [
        write_hdf5,
        lambda file: torch.save({"a": torch.zeros(50_000)}, file),
        lambda file: file.write(bytes(200_000)),
    ],
    ids=["HDF5", "torch", "bytes"],
)
@pytest.mark.parametrize("n_bytes", [0, 5000, 100_000])
def test_full_disk(write_to: Callable[[Any], None], n_bytes: int, tmp_path: Path) -> None:
    """On its own, HDF5 crashes; in a process of its own for that reason."""
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")

    def fill() -> None:
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: .*nothing has changed there.*/file'"):
            with whole_file(path) as staged, LateErrorFile(staged) as file:
                write_to(file)

    assert fork(fill) == 0
    assert path.read_text(encoding="utf-8") == "old"


def test_late_errors_leave_other_files_as_they_are(tmp_path: Path) -> None:
    with LateErrorFile(tmp_path / "late") as file:
        write_hdf5(file)
    with h5py.File(tmp_path / "late", "r") as hdf5:
        assert len(hdf5) == 50
    with LateErrorFile(tmp_path / "late.th") as file:
        torch.save({"a": torch.arange(5)}, file)
    assert torch.load(tmp_path / "late.th")["a"].tolist() == [0, 1, 2, 3, 4]
