import os
import signal
from functools import partial
from pathlib import Path
from threading import Timer

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.files.atomic import LateErrorFile, atomic_file, output_folder, write_text
from tests.support.testing import fork, limit_file_size, read_files

NAMES = ("options", "weights", "vocabulary", "extra")


def write_file(path, version):
    with atomic_file(path) as staged:
        Path(staged).write_bytes(version)


def write_folder(folder, version, force=True):
    """Write the files of a version; the first has a file more."""
    with output_folder(folder, NAMES, force) as new:
        (new / "vocabulary").mkdir()
        for name in ("options", "weights", "vocabulary/words", "scratch"):
            (new / name).write_bytes(version)
        if version == b"1":
            (new / "extra").write_bytes(version)


def whole(version):
    names = ["options", "weights", "vocabulary/words"] + ["extra"] * (version == b"1")
    return dict.fromkeys(names, version)


def test_a_folder_loses_its_earlier_files_and_keeps_others(tmp_path, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    out = tmp_path / "a" / "out"
    write_folder("~/a/out", b"1", force=False)
    assert read_files(out) == whole(b"1")
    (out / "vocabulary" / "labels").touch()
    (out / "notes").write_text("mine")
    with pytest.raises(ValueError, match="a.out is not empty; .*--force"):
        write_folder(out, b"2", force=False)
    write_folder(out, b"2")
    assert read_files(out) == {**whole(b"2"), "notes": b"mine"}


@pytest.mark.parametrize("name", ["file", "new file", "out/", "new/"])
def test_an_error_changes_nothing(name, tmp_path):
    write_file(tmp_path / "file", b"old")
    write_folder(tmp_path / "out", b"1")
    before = read_files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        if name.endswith("/"):
            with output_folder(tmp_path / name, NAMES, force=True) as new:
                (new / "options").touch()
                raise KeyboardInterrupt
        with atomic_file(tmp_path / name) as staged:
            Path(staged).write_text("new")
            raise KeyboardInterrupt
    assert read_files(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "out"]


@pytest.mark.parametrize("name", ["old/extra", "old/options", "out/vocabulary", "out/options"])
def test_a_file_that_cannot_be_moved_changes_nothing(name, tmp_path, monkeypatch):
    out, replace = tmp_path / "out", os.replace
    write_folder(out, b"1")

    def move(source, target):
        if Path(target) in (out / name[4:], out / ".elmo.partial" / name) and source != target:
            monkeypatch.undo()
            raise OSError("a bad sector")
        replace(source, target)

    monkeypatch.setattr(os, "replace", move)
    with pytest.raises(OSError, match="a bad sector"):
        write_folder(out, b"2")
    assert read_files(out) == whole(b"1")


@pytest.mark.skipif(os.name != "nt", reason="other systems replace files that are open")
def test_files_that_are_open_elsewhere(tmp_path):
    write_folder(tmp_path, b"1")
    scanned = open(tmp_path / "options")
    Timer(0.5, scanned.close).start()
    write_folder(tmp_path, b"2")
    with open(tmp_path / "weights"):
        for write, name in ((write_file, "weights"), (write_folder, "")):
            with pytest.raises(PermissionError, match="open in another program") as raised:
                write(tmp_path / name, b"3")
            assert Path(raised.value.filename) == tmp_path / "weights"
    assert read_files(tmp_path) == whole(b"2")


def test_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def rename(source, target):
        events.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda file: events.append("sync") or fsync(file))
    monkeypatch.setattr(os, "replace", rename)
    write_file(tmp_path / "file", b"new")
    of_folder = ["sync"] * (os.name != "nt")
    assert events == ["sync", "file", *of_folder]
    events.clear()
    write_folder(tmp_path / "out", b"2")
    # Four files, two folders; the required file comes last.
    names = ["vocabulary", "weights", "options"]
    assert events == [*["sync"] * 4, *of_folder * 2, *names, *of_folder]


def test_a_text_has_the_same_bytes_on_all_systems(tmp_path):
    write_text(tmp_path / "text", "Łódź\n\n")
    assert read_files(tmp_path) == {"text": "Łódź\n\n".encode()}


def test_links_are_replaced_not_followed(tmp_path):
    (tmp_path / "other" / "words").mkdir(parents=True)
    (tmp_path / "other" / "text").write_text("other")
    (tmp_path / "out").mkdir()
    for name, target in (("options", "other/text"), ("weights", "x"), ("vocabulary", "other")):
        (tmp_path / "out" / name).symlink_to(tmp_path / target)
    write_file(tmp_path / "out" / "options", b"new")
    write_folder(tmp_path / "out", b"1")
    assert read_files(tmp_path / "out") == whole(b"1")
    assert read_files(tmp_path / "other") == {"text": b"other"}
    (tmp_path / "link").symlink_to(tmp_path / "other")  # the output itself may be one
    write_folder(tmp_path / "link", b"1")
    assert read_files(tmp_path / "other") == {**whole(b"1"), "text": b"other"}


@pytest.mark.parametrize(
    "write, name, message",
    [
        (write_file, "file/file", "there is no such folder"),
        (write_file, "folder", "is a folder, a device or a pipe"),
        (write_file, "new/", "is a folder, a device or a pipe"),
        (write_file, "new", "cannot write into this folder"),
        (write_folder, "file/new/out", "file/new/out is a file, not a folder, or in one"),
        (write_folder, "dangling", "dangling is a file, not a folder"),
    ],
)
def test_what_cannot_be_written(write, name, message, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises((OSError, ValueError), match=message):
        write(f"{tmp_path}/{name}", b"1")
    with pytest.raises(ValueError, match="the output is an empty name"):
        write_folder("", b"1")


def test_writers_that_wait_take_turns(tmp_path):
    """The lock and its folder are made and removed all the time."""

    def write_often():
        for _ in range(50):
            with atomic_file(tmp_path / "file", wait=True) as staged:
                Path(staged).write_text(f"{os.getpid()}\n" * 1000)

    children = [fork(write_often, wait=False) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    assert len(set((tmp_path / "file").read_text().splitlines())) == 1
    with atomic_file(tmp_path / "lock") as staged, output_folder(tmp_path / "out", NAMES):
        Path(staged).touch()
        for write, name in ((write_file, "lock"), (write_folder, "out")):
            with pytest.raises(BlockingIOError, match=f"another process is using it.*{name}"):
                write(tmp_path / name, b"2")


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("before", [None, b"1"])
@pytest.mark.parametrize("is_file", [True, False])
def test_killed_before_every_system_call(is_file, before, tmp_path):
    """A reader finds the old version, the new one, or not the file that a folder requires."""
    seen = set()
    for moment in range(1000):
        output = tmp_path / str(moment)
        output.mkdir()
        write = partial(*(write_file, output / "options") if is_file else (write_folder, output))
        if before is not None:
            write(before)
        killed = fork(lambda: write(b"2"), kill_at=moment) == signal.SIGKILL  # noqa: B023
        files = {name: text for name, text in read_files(output).items() if name[0] != "."}
        options = files.get("options")
        assert options is None or is_file or files == whole(options)
        seen.add(options)
        write(b"3")
        assert read_files(output) == ({"options": b"3"} if is_file else whole(b"3"))
        if not killed:
            break
    assert moment > 5 and seen | {None} == {before, b"2", None}
    assert not is_file or seen == {before, b"2"}


def write_hdf5(file):
    with h5py.File(file, "w") as hdf5:
        for name in range(50):
            hdf5.create_dataset(str(name), data=np.arange(1000.0))


def write_torch(file):
    torch.save({"a": torch.zeros(50_000)}, file)


def write_and_truncate(file):
    file.write(b"12345")
    assert file.truncate(2) == 2
    assert file.truncate(200_000) == 200_000


@pytest.mark.parametrize("write_to", [write_hdf5, write_torch, write_and_truncate])
def test_files_of_libraries(write_to, tmp_path):
    """Also on a disk that is full; in a process, which HDF5 on its own crashes."""
    write_file(tmp_path / "file", b"old")

    def write():
        with atomic_file(tmp_path / "file") as staged, LateErrorFile(staged) as file:
            write_to(file)

    def fill(n_bytes):
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: .*nothing has changed there.*/file'"):
            write()

    for n_bytes in (0, 100_000):
        assert fork(partial(fill, n_bytes)) == 0
        assert read_files(tmp_path) == {"file": b"old"}
    write()
    with open(tmp_path / "plain", "w+b") as plain:
        write_to(plain)
    assert (tmp_path / "file").read_bytes() == (tmp_path / "plain").read_bytes()
