"""Files and folders that appear whole or not at all."""

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

from allennlp_elmo_plugin.files.whole import LateErrorFile, output_folder, whole_file
from tests.support.testing import fork, limit_file_size, tmpfs

NAMES = ("options", "weights", "vocabulary", "extra")


@pytest.fixture(autouse=True)
def _leaves_no_staging(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.rglob("*.partial"))


def write_file(path: Any, text: str) -> None:
    with whole_file(path) as staged, open(staged, "w", encoding="utf-8") as file:
        file.write(text)


def write_folder(folder: Any, version: str, force: bool = True) -> None:
    """Write the files of a version; one beginning with `1` has a file more."""
    with output_folder(folder, NAMES, force) as new:
        (new / "vocabulary").mkdir()
        for name in ("options", "weights", "vocabulary/words", "scratch"):
            (new / name).write_text(version, encoding="utf-8")
        if version[0] == "1":
            (new / "extra").write_text(version, encoding="utf-8")


def content(path: Path) -> Any:
    """The texts of the files in a folder, hidden ones left out."""
    paths = [each for each in path.rglob("*") if each.is_file() and "/." not in str(each)]
    return {str(each.relative_to(path)): each.read_text("utf-8") for each in paths}


def whole(version: str) -> Any:
    names = ["options", "weights", "vocabulary/words"] + ["extra"] * (version[0] == "1")
    return dict.fromkeys(names, version)


def test_a_file_appears_at_the_end_on_the_same_disk(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    with whole_file(tmp_path / "file") as staged:
        Path(staged).write_text("new", encoding="utf-8")
        assert content(tmp_path) == {"file": "old"} and tmp_path in Path(staged).parents
    assert content(tmp_path) == {"file": "new"}


def test_a_folder_loses_its_earlier_files_and_keeps_others(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "out", "1", force=False)
    assert content(tmp_path / "a" / "out") == whole("1")
    (tmp_path / "a" / "out" / "vocabulary" / "labels").touch()
    (tmp_path / "a" / "out" / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="a/out is not empty; .*--force"):
        write_folder(tmp_path / "a" / "out", "2", force=False)
    write_folder(tmp_path / "a" / "out", "2")
    assert content(tmp_path / "a" / "out") == {**whole("2"), "notes": "mine"}


@pytest.mark.parametrize("name", ["file", "new file", "out/"])
def test_an_error_changes_nothing(name: str, tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    write_folder(tmp_path / "out", "1")
    before = content(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        if name.endswith("/"):
            with output_folder(tmp_path / name, NAMES, force=True) as new:
                (new / "options").touch()
                raise KeyboardInterrupt
        with whole_file(tmp_path / name) as staged:
            Path(staged).write_text("new", encoding="utf-8")
            raise KeyboardInterrupt
    assert content(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


def test_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    fsync, replace = os.fsync, os.replace

    def note(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def rename(source: Any, target: Any) -> None:
        events.append(f"rename {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", rename)
    write_file(tmp_path / "file", "new")
    assert events == ["file", "rename file", "folder"]
    events.clear()
    write_folder(tmp_path / "out", "2")
    assert sorted(events[:-4]) == ["file"] * 4 + ["folder"] * 2
    # The required file comes last.
    assert events[-4:] == ["rename vocabulary", "rename weights", "rename options", "folder"]


def test_links_are_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other" / "words").mkdir(parents=True)
    (tmp_path / "other" / "text").write_text("other", encoding="utf-8")
    (tmp_path / "out").mkdir()
    for name, target in (("options", "other/text"), ("weights", "x"), ("vocabulary", "other")):
        (tmp_path / "out" / name).symlink_to(tmp_path / target)
        (tmp_path / name).symlink_to(target)
        write_file(tmp_path / name, "new")
        assert not (tmp_path / name).is_symlink()
    write_folder(tmp_path / "out", "1")
    assert content(tmp_path / "out") == whole("1")
    assert content(tmp_path / "other") == {"text": "other"}
    (tmp_path / "link").symlink_to("other")  # the output itself may be one
    write_folder(tmp_path / "link", "1")
    assert content(tmp_path / "other") == {**whole("1"), "text": "other"}


@pytest.mark.parametrize("name", ["naïve 東京", "-", "x" * 200, ".hidden", "\n", "lock"])
def test_any_name_will_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_file(name, "new")  # relative
    assert Path(name).read_text(encoding="utf-8") == "new"
    for path in (f"{name}.out", "~/out", "."):
        write_folder(path, "2")
        assert content(Path(os.path.expanduser(path))).items() >= whole("2").items()


@pytest.mark.parametrize(
    "write, name, message",
    [
        (write_file, "missing/file", "there is no such folder"),
        (write_file, "file/file", "there is no such folder"),
        (write_file, "folder", "is a folder, a device or a pipe"),
        (write_file, "new/", "is a folder, a device or a pipe"),
        (write_file, "folder/", "is a folder, a device or a pipe"),
        (write_file, "pipe", "is a folder, a device or a pipe"),
        (write_file, "null", "is a folder, a device or a pipe"),
        (write_folder, "file", "file is a file, not a folder"),
        (write_folder, "file/new/out", "file/new/out is a file, not a folder, or in one"),
        (write_folder, "dangling", "dangling is a file, not a folder"),
    ],
)
def test_what_cannot_be_written(write: Any, name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises((OSError, ValueError), match=message):
        write(f"{tmp_path}/{name}", "1")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and (tmp_path / "null").is_symlink()


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, *arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(PermissionError, match="cannot write: Permission denied.*/new'"):
        write_file(tmp_path / "new", "new")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="cannot write into this folder"):
        write_file(tmp_path / "new", "new")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with whole_file(tmp_path / "file") as staged, output_folder(tmp_path / "out", NAMES) as new:
        Path(staged).write_text("first", encoding="utf-8")
        (new / "options").write_text("first", encoding="utf-8")
        for write, name in ((write_file, "file"), (write_folder, "out")):
            with pytest.raises(BlockingIOError, match=f"another process is using it.*/{name}'"):
                write(tmp_path / name, "second")
            assert fork(lambda: write(tmp_path / name, "second")) != 0  # noqa: B023
        write_file(tmp_path / "another file", "new")
    expected = {"file": "first", "out/options": "first", "another file": "new"}
    assert content(tmp_path) == expected


def test_writers_that_wait_take_turns(tmp_path: Path) -> None:
    """The lock and its folder are made and removed all the time."""

    def write_often() -> None:
        for _ in range(50):
            with whole_file(tmp_path / "file", wait=True) as staged:
                Path(staged).write_text(f"{os.getpid()}\n" * 1000, encoding="utf-8")

    children = [fork(write_often, wait=False) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    assert len(set((tmp_path / "file").read_text(encoding="utf-8").splitlines())) == 1


@pytest.mark.parametrize("before", [None, "1"])
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_killed_before_every_system_call(write: Any, before: Any, tmp_path: Path) -> None:
    """A reader finds the old version, the new one, or not the file that it requires."""
    seen = set()
    for moment in range(1000):
        output = tmp_path / f"out{moment}"
        if before is not None:
            write(output, before)
        killed = fork(lambda: write(output, "2"), kill_at=moment) == signal.SIGKILL  # noqa: B023
        if write is write_file:
            found = output.read_text("utf-8") if output.exists() else None
            assert found in (before, "2")
        else:
            files = content(output)
            found = files.get("options")
            assert found is None or files == whole(found)
        seen.add(found)
        write(output, "3")
        assert not list(tmp_path.rglob(".*"))
        assert write is write_file or content(output) == whole("3")
        if not killed:
            break
    assert seen - {None} == {before, "2"} - {None} and moment > 5


def write_hdf5(file: Any) -> None:
    with h5py.File(file, "w") as hdf5:
        for name in range(50):
            hdf5.create_dataset(str(name), data=np.random.rand(1000))


def write_torch(file: Any) -> None:
    torch.save({"a": torch.zeros(50_000)}, file)


def write_and_truncate(file: Any) -> None:
    file.write(b"12345")
    assert file.truncate(2) == 2
    assert file.truncate(200_000) == 200_000


@pytest.mark.parametrize("write_to", [write_hdf5, write_torch, write_and_truncate])
@pytest.mark.parametrize("n_bytes", [0, 100_000])
def test_full_disk(write_to: Callable[[Any], None], n_bytes: int, tmp_path: Path) -> None:
    """On its own, HDF5 crashes; in a process of its own for that reason."""
    write_file(tmp_path / "file", "old")

    def fill() -> None:
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: .*nothing has changed there.*/file'"):
            with whole_file(tmp_path / "file") as staged, LateErrorFile(staged) as file:
                write_to(file)

    assert fork(fill) == 0
    assert content(tmp_path) == {"file": "old"}


def test_files_of_libraries_on_a_disk_with_room(tmp_path: Path) -> None:
    for write in (write_hdf5, write_torch, write_and_truncate):
        with LateErrorFile(tmp_path / write.__name__) as file:
            write(file)
    with h5py.File(tmp_path / "write_hdf5", "r") as hdf5:
        assert len(hdf5) == 50
    assert torch.load(tmp_path / "write_torch")["a"].numel() == 50_000
    assert (tmp_path / "write_and_truncate").read_bytes() == b"12".ljust(200_000, b"\0")


def test_a_mount_point_that_is_full(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with tmpfs(tmp_path / "out", size="64k"):
        write_folder(tmp_path / "out", "1", force=False)
        with pytest.raises(OSError, match="No space left on device; nothing has changed.*/out'"):
            write_folder(tmp_path / "out", "2" * 100_000)
        assert content(tmp_path / "out") == whole("1")
