import errno
import os
import random

import h5py
import numpy as np
import pytest

from allennlp_elmo_plugin.embedding.journaled_file import JournaledFile, journal_path, read_note
from tests.support.full_disk import Disk
from tests.support.testing import fork, limit_file_size


def content(path):
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("seed", range(40))
def test_a_file_goes_back_to_the_last_commit(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    path = str(tmp_path / "f")
    file = JournaledFile(path)
    file.write(rng.randbytes(20000) if hasattr(rng, "randbytes") else os.urandom(20000))
    file.commit(-1)
    commits = {-1: content(path)}
    with monkeypatch.context() as context:
        disk = Disk(context, rng.randrange(120000))
        for i in range(60):
            action = rng.random()
            size = os.path.getsize(path)
            if action < 0.15:
                file.commit(i)
                if disk.left:
                    commits[i] = content(path)
            elif action < 0.25:
                file.truncate(rng.randrange(size + 1000))
            else:
                file.seek(rng.randrange(size + 1000))
                file.write(os.urandom(rng.randrange(9000)))
        file.close()
    for _ in range(2):  # also after what was brought back was not used
        recovered = JournaledFile(path, recover=True)
        assert content(path) == commits[recovered.note]
        # A commit that was cut off by the end of the disk may be the one after.
        assert recovered.note == read_note(path) and recovered.note in list(commits)[-2:]
        recovered.write(b"x" * 5000)
        recovered.close()


@pytest.mark.parametrize("libver", ["earliest", ("v108", "latest"), ("v110", "latest")])
@pytest.mark.parametrize("seed", range(6))
def test_hdf5_goes_back_to_the_last_commit(seed, libver, tmp_path, monkeypatch):
    rng = random.Random(seed)
    path = str(tmp_path / "f")
    file = JournaledFile(path)
    with monkeypatch.context() as context:
        disk = Disk(context, rng.randrange(20000, 400000))
        try:
            with h5py.File(file, "w", libver=libver) as hdf5:
                for i in range(1000):
                    hdf5[str(rng.randrange(10**9)) + f" {i}"] = np.full(rng.randrange(60), i)
                    hdf5[f"g{i % 7}/{i}"] = i
                    if i % 50 == 0:
                        hdf5.flush()
                        file.commit(i + 1)
                    if not disk.left:
                        break
        except (OSError, RuntimeError):
            pass  # HDF5 reads what did not get to the disk
        file.close()
    file = JournaledFile(path, recover=True)
    with h5py.File(file, "r+") as hdf5:
        values = {int(key.split()[1]): hdf5[key][...] for key in hdf5 if key[0] != "g"}
        assert sorted(values) == list(range(file.note))
        assert all((values[i] == i).all() for i in values)
        assert sum(len(hdf5[key]) for key in hdf5 if key[0] == "g") == file.note
        hdf5["more"] = 1
    file.close()
    with h5py.File(path, "r") as hdf5:
        assert hdf5["more"][()] == 1


def test_full_disk(tmp_path, monkeypatch):
    path = str(tmp_path / "f")
    file = JournaledFile(path)
    file.write(b"before")
    file.commit("note")
    with monkeypatch.context() as context:
        Disk(context, 100, OSError(errno.ENOSPC, "No space left on device"))
        file.write(b"x" * 1000)
        assert file.error.errno == errno.ENOSPC
        file.write(b"y" * 1000)
        with pytest.raises(OSError):
            file.commit("later")
    file.close()
    assert JournaledFile(path, recover=True).note == "note"
    assert content(path) == b"before"


def test_a_commit_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    path = str(tmp_path / "f")
    file = JournaledFile(path)
    file.write(b"before")
    file.commit("note")
    file.seek(0)
    file.write(b"after!!")
    with monkeypatch.context() as context:
        Disk(context, 10, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(OSError):
            file.commit("later")
    file.close()
    assert sorted(os.listdir(tmp_path)) == ["f", "f.journal"]
    assert JournaledFile(path, recover=True).note == "note"
    assert content(path) == b"before"


def test_two_processes(tmp_path):
    file = JournaledFile(str(tmp_path / "f"))
    with pytest.raises(BlockingIOError):
        JournaledFile(str(tmp_path / "f"))
    file.close()
    JournaledFile(str(tmp_path / "f")).close()


def test_nothing_to_recover(tmp_path):
    path = str(tmp_path / "f")
    assert read_note(path) is None
    with pytest.raises(FileNotFoundError):
        JournaledFile(path, recover=True)
    JournaledFile(path).close()
    assert read_note(path) is None  # no commit


def test_a_damaged_journal_is_named(tmp_path):
    path = str(tmp_path / "f")
    file = JournaledFile(path)
    file.commit("note")
    file.close()
    with open(journal_path(path), "r+b") as journal:
        journal.seek(-2, os.SEEK_END)
        journal.write(b"zz")
    with pytest.raises(ValueError, match="f.journal is damaged"):
        JournaledFile(path, recover=True)


@pytest.mark.parametrize("n_bytes", [0, 1])
def test_a_full_disk_at_the_start_is_an_error_that_names_the_file(n_bytes, tmp_path):
    path = str(tmp_path / "file")

    def write():
        limit_file_size(0)
        file = JournaledFile(path)
        file.write(bytes(n_bytes))
        with pytest.raises(OSError) as raised:
            file.commit({})
        assert raised.value.filename == (path if n_bytes else journal_path(path))

    assert fork(write) == 0
