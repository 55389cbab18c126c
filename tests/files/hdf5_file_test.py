import os
import time
import tracemalloc

import h5py
import numpy as np
import pytest

from allennlp_elmo_plugin.files.hdf5_file import allowance, float_datasets, open_weight_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.hdf5"


VIRTUAL = h5py.VirtualLayout((3,), "f4")
VIRTUAL[:] = h5py.VirtualSource("other.hdf5", "x", (3,))
GZIP = {"compression": "gzip"}
REFUSED = [
    ({"group/x": {"external": "secret"}}, "'group/x' has its data in other files"),
    ({"x": VIRTUAL}, "'x' has its data in other files"),
    # Data that were never written
    ({"x": {}}, "'x' takes 4,000,000,000,000 bytes, of which 0 are stored"),
    ({"x": GZIP}, "'x' takes 4,000,000,000,000 bytes, of which 0 are stored"),
    # Two halves of a bomb, and a chunk larger than the data
    (dict.fromkeys("xy", {"data": np.zeros(2**23 + 9, "f4"), **GZIP}), "take 67,.* more than 100"),
    ({"x": {"data": np.zeros(3), "maxshape": [None], "chunks": (2**25,), **GZIP}}, "more than 100"),
]


@pytest.mark.parametrize("datasets, message", REFUSED)
def test_files_without_their_data_are_refused(datasets, message, path):
    with h5py.File(path, "w") as file:
        file["sound"] = np.ones((3, 4), "f4")
        for name, settings in datasets.items():
            if settings is VIRTUAL:
                file.create_virtual_dataset(name, VIRTUAL)
            else:
                size = {} if "data" in settings else {"shape": (10**6, 10**6)}
                file.create_dataset(name, dtype="f4", **size, **settings)
    with pytest.raises(ValueError, match=f"weights.hdf5: .*{message}"):
        with open_weight_file(path):
            pass


def test_compressed_weights_are_read(path):
    values = np.random.RandomState(0).standard_normal((30, 40)).astype("float32")
    with h5py.File(path, "w") as file:
        for name in ("gzip", "lzf"):
            file.create_dataset(name, data=values, compression=name, shuffle=True, fletcher32=True)
        file.create_dataset("empty", data=np.zeros((0, 3), "float32"), maxshape=(None, 3))
    with open_weight_file(path) as file:
        assert np.array_equal(file["gzip"][...], values)
        assert np.array_equal(file["lzf"][...], values)
        assert file["empty"].shape == (0, 3)
    assert allowance(1) == 64 * 2**20 and allowance(2**30) == 100 * 2**30


def test_only_numbers_of_the_file_itself_are_found(path):
    """Once each: links are not followed."""
    with h5py.File(path, "w") as file:
        file["sound"] = np.ones((3, 4), "float32")
        file["text"], file["numbers"] = "text", np.arange(3)
        file["records"] = np.zeros(3, [("a", "f4"), ("b", "i4")])
        file.create_dataset("nothing", data=h5py.Empty("f4"))
        file["type"] = np.dtype("f4")
        file["group/loop"] = file["/"]
        file["soft"], file["nowhere"] = h5py.SoftLink("/sound"), h5py.SoftLink("/nowhere")
        file["x"] = h5py.ExternalLink("other.hdf5", "x")
        file[b"\xff"] = np.ones(1, "float32")
        file["group/again"] = file["sound"]
    with open_weight_file(path) as file:
        names = [name for name, _ in float_datasets(file)]
    assert len(names) == 2 and "\udcff" in names


@pytest.mark.parametrize("name, n_files", [("x" * 60_000, 1), ("x", 11_000)])
def test_too_many_or_too_long_names(name, n_files, path):
    """Refused at once: with all paths, this file of 1 MB would take gigabytes."""
    with h5py.File(path, "w") as file:
        group = file
        for i in range(20 if n_files == 1 else n_files):
            group = (group if n_files == 1 else file).create_group(f"{name}{i}")
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ValueError, match="more than 10,000 objects, or a name longer than 1,000"):
        with open_weight_file(path):
            pass
    assert time.process_time() - start < 5 and tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_no_file_of_weights(path, tmp_path):
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("weights.hdf5", "not an HDF5 file, or one cut off"),
        ("", "not an HDF5 file"),
        ("pipe", "not an HDF5 file, .*a pipe"),
        ("missing", "no such weight file"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=f"{name}: {message}"):
            with open_weight_file(tmp_path / name):
                pass
