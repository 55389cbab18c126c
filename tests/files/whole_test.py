import os
import signal
import stat
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.files.whole import LateErrorFile, output_folder, whole_file
from tests.support.testing import fork, limit_file_size

NAMES = ("options", "weights", "vocabulary", "extra")


def write_file(path, text):
    with whole_file(path) as staged:
        Path(staged).write_text(text)


def write_folder(folder, version, force=True):
    """Write the files of a version; one beginning with `1` has a file more."""
    with output_folder(folder, NAMES, force) as new:
        (new / "vocabulary").mkdir()
        for name in ("options", "weights", "vocabulary/words", "scratch"):
            (new / name).write_text(version)
        if version[0] == "1":
            (new / "extra").write_text(version)


def content(path):
    return {
        str(each.relative_to(path)): each.read_text() for each in path.rglob("*") if each.is_file()
    }


def whole(version):
    names = ["options", "weights", "vocabulary/words"] + ["extra"] * (version[0] == "1")
    return dict.fromkeys(names, version)


def test_a_folder_loses_its_earlier_files_and_keeps_others(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    out = tmp_path / "a" / "out"
    write_folder("~/a/out", "1", force=False)
    assert content(out) == whole("1")
    (out / "vocabulary" / "labels").touch()
    (out / "notes").write_text("mine")
    with pytest.raises(ValueError, match="a/out is not empty; .*--force"):
        write_folder(out, "2", force=False)
    write_folder(out, "2")
    assert content(out) == {**whole("2"), "notes": "mine"}


@pytest.mark.parametrize("name", ["file", "new file", "out/", "new/"])
def test_an_error_changes_nothing(name, tmp_path):
    write_file(tmp_path / "file", "old")
    write_folder(tmp_path / "out", "1")
    before = content(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        if name.endswith("/"):
            with output_folder(tmp_path / name, NAMES, force=True) as new:
                (new / "options").touch()
                raise KeyboardInterrupt
        with whole_file(tmp_path / name) as staged:
            Path(staged).write_text("new")
            raise KeyboardInterrupt
    assert content(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


def test_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def note(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def rename(source, target):
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


def test_links_are_replaced_not_followed(tmp_path):
    (tmp_path / "other" / "words").mkdir(parents=True)
    (tmp_path / "other" / "text").write_text("other")
    (tmp_path / "out").mkdir()
    for name, target in (("options", "other/text"), ("weights", "x"), ("vocabulary", "other")):
        (tmp_path / "out" / name).symlink_to(tmp_path / target)
    write_file(tmp_path / "out" / "options", "new")
    write_folder(tmp_path / "out", "1")
    assert content(tmp_path / "out") == whole("1")
    assert content(tmp_path / "other") == {"text": "other"}
    (tmp_path / "link").symlink_to("other")  # the output itself may be one
    write_folder(tmp_path / "link", "1")
    assert content(tmp_path / "other") == {**whole("1"), "text": "other"}


@pytest.mark.parametrize(
    "write, name, message",
    [
        (write_file, "file/file", "there is no such folder"),
        (write_file, "folder", "is a folder, a device or a pipe"),
        (write_file, "new/", "is a folder, a device or a pipe"),
        (write_file, "pipe", "is a folder, a device or a pipe"),
        (write_file, "null", "is a folder, a device or a pipe"),
        (write_folder, "file/new/out", "file/new/out is a file, not a folder, or in one"),
        (write_folder, "dangling", "dangling is a file, not a folder"),
    ],
)
def test_what_cannot_be_written(write, name, message, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises((OSError, ValueError), match=message):
        write(f"{tmp_path}/{name}", "1")
    with pytest.raises(ValueError, match="the output is an empty name"):
        write_folder("", "1")


def test_no_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="cannot write into this folder"):
        write_file(tmp_path / "new", "new")


def test_writers_that_wait_take_turns(tmp_path):
    """The lock and its folder are made and removed all the time."""

    def write_often():
        for _ in range(50):
            with whole_file(tmp_path / "file", wait=True) as staged:
                Path(staged).write_text(f"{os.getpid()}\n" * 1000)

    children = [fork(write_often, wait=False) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    assert len(set((tmp_path / "file").read_text().splitlines())) == 1
    with whole_file(tmp_path / "lock") as staged, output_folder(tmp_path / "out", NAMES):
        Path(staged).touch()
        for write, name in ((write_file, "lock"), (write_folder, "out")):
            with pytest.raises(BlockingIOError, match=f"another process is using it.*{name}"):
                write(tmp_path / name, "2")


@pytest.mark.parametrize("before", [None, "1"])
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_killed_before_every_system_call(write, before, tmp_path):
    """A reader finds the old version, the new one, or not the file that it requires."""
    seen = set()
    for moment in range(1000):
        output = tmp_path / f"out{moment}"
        if before is not None:
            write(output, before)
        killed = fork(lambda: write(output, "2"), kill_at=moment) == signal.SIGKILL  # noqa: B023
        if write is write_file:
            found = output.read_text() if output.exists() else None
            assert found in (before, "2")
        else:
            files = {name: text for name, text in content(output).items() if name[0] != "."}
            found = files.get("options")
            assert found is None or files == whole(found)
        seen.add(found)
        write(output, "3")
        assert not list(tmp_path.rglob(".*"))
        assert write is write_file or content(output) == whole("3")
        if not killed:
            break
    assert seen - {None} == {before, "2"} - {None} and moment > 5


def write_hdf5(file):
    with h5py.File(file, "w") as hdf5:
        for name in range(50):
            hdf5.create_dataset(str(name), data=np.random.rand(1000))


def write_torch(file):
    torch.save({"a": torch.zeros(50_000)}, file)


def write_and_truncate(file):
    file.write(b"12345")
    assert file.truncate(2) == 2
    assert file.truncate(200_000) == 200_000


@pytest.mark.parametrize("write_to", [write_hdf5, write_torch, write_and_truncate])
@pytest.mark.parametrize("n_bytes", [0, 100_000, None])
def test_files_of_libraries(write_to, n_bytes, tmp_path):
    """On a disk that is full, if not for `None`; in a process, which HDF5 on its own crashes."""
    write_file(tmp_path / "file", "old")

    def write():
        with whole_file(tmp_path / "file") as staged, LateErrorFile(staged) as file:
            write_to(file)

    def fill():
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: .*nothing has changed there.*/file'"):
            write()

    if n_bytes is not None:
        assert fork(fill) == 0
        assert content(tmp_path) == {"file": "old"}
        return
    write()
    if write_to is write_hdf5:
        with h5py.File(tmp_path / "file", "r") as hdf5:
            assert len(hdf5) == 50 and hdf5["49"].shape == (1000,)
    elif write_to is write_torch:
        assert torch.load(tmp_path / "file")["a"].numel() == 50_000
    else:
        assert (tmp_path / "file").read_bytes() == b"12".ljust(200_000, b"\0")
