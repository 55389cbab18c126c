"""Checkpoints of TensorFlow: each number as TensorFlow wrote it, and damaged files refused."""

import os
import shutil

import numpy as np
import pytest

from allennlp_elmo_plugin.pretrained.checkpoints.tensorflow_checkpoint import (
    find_checkpoint,
    read_index,
)
from tests.support.bilm_tf import REFERENCE, load_run
from tests.support.tensorflow_checkpoint_writer import entry, write_checkpoint, write_index

CHECKPOINT = REFERENCE / "checkpoint"
PREFIX = "model.ckpt-30"
DATA = f"{PREFIX}.data-00000-of-00001"


def test_is_what_tensorflow_wrote():
    entries = read_index(CHECKPOINT / PREFIX)
    _, arrays = load_run("train_charcnn")
    expected = {
        name[len(prefix) :] + slot: values
        for prefix, slot in (("final/", ""), ("accum/", "/Adagrad"))
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
    assert set(entries) == {*expected, "global_step", "train_perplexity"}
    for name, values in expected.items():
        assert entries[name].is_float and entries[name].shape == values.shape
        assert np.array_equal(entries[name].open(), values), name
    assert entries["global_step"].open() == 30


@pytest.mark.parametrize("n_shards, block_entries", [(1, 100), (3, 1), (2, 7)])
def test_shards_blocks_and_types(tmp_path, n_shards, block_entries):
    variables = {f"{'a' * (i % 4)}/{i}": np.full((i % 5, 3), i, "float32") for i in range(45)}
    for dtype in ("float16", "float64", "int32", "int64"):
        variables[dtype] = np.arange(-3, 4, dtype=dtype)
    variables["scalar"] = np.array(5, "int64")
    write_checkpoint(tmp_path / "x", variables, n_shards, block_entries=block_entries)
    entries = read_index(tmp_path / "x.index")
    assert sorted(entries) == sorted(variables)
    for name, values in variables.items():
        read = entries[name].open()
        assert read.dtype == values.dtype and np.array_equal(read, values)


def test_the_checkpoint_of_a_folder_is_the_one_that_its_file_names(tmp_path):
    (tmp_path / "corpus.index").touch()  # of another program
    assert find_checkpoint(tmp_path) is None
    for number in (1, 2):
        write_checkpoint(tmp_path / f"model.ckpt-{number}", {"x": np.array(number, "int32")})
        assert number == 2 or find_checkpoint(tmp_path) == tmp_path / "model.ckpt-1"
    both = r"there are \['model.ckpt-1', 'model.ckpt-2'\]; give the path of one"
    for text, message in (
        (None, both),
        ('model_checkpoint_path: "model.ckpt-3"', f"names 'model.ckpt-3'; .* {both}"),
        ('model_checkpoint_path: "\x1b[31m"', r"names '\\x1b\[31m"),
        ('model_checkpoint_path: "..', "names ''"),
        (" \n" * 2**20, "names ''"),
        ('model_checkpoint_path: "model.ckpt-1"\nall: "model.ckpt-2"\n', None),
        ('model_checkpoint_path: "/old/model.ckpt-1"', None),
    ):
        if text is not None:
            (tmp_path / "checkpoint").write_text(text)
        if message is None:
            assert find_checkpoint(tmp_path) == tmp_path / "model.ckpt-1"
            continue
        with pytest.raises(FileNotFoundError, match=message) as caught:
            find_checkpoint(tmp_path)
        assert str(tmp_path) in str(caught.value) and str(caught.value).isprintable()
    with pytest.raises(ValueError, match="old.ckpt.index: missing"):
        read_index(tmp_path / "old.ckpt.index")


@pytest.mark.parametrize(
    "entries, message",
    [
        # What an index says is compared with the data before there is memory for it.
        ({b"x": entry([2**20, 2**20], 2**42)}, "00001: is cut off"),
        ({b"x": entry([5], 20, offset=81)}, "00001: is cut off"),
        ({b"x": entry([2**40, 2**40], 20)}, "00001: .* 20 bytes of .*type 1 in"),
        ({b"x": entry([3], 3, dtype=4)}, "00001: .* 3 bytes of .*type 4"),
        ({b"x": b"\x08\x01\x3a\x00"}, "00001: can't read a variable in parts"),
        ({b"x": entry([5], 20)}, "00001: a checksum is wrong"),
        ({b"x": entry([1] * 33, 4)}, "is damaged .it has a shape"),
        ({b"x": b"\x28" + b"\xff" * 100}, "more than 64 bits"),
        ({b"x": b"\x08"}, "is damaged"),
        ({b"x": b"\x0b\x01"}, "wire type 3"),
        ({b"": b"\x0a\x01\x01"}, "is damaged"),
        ({b"": b"\x08\x01\x10\x01"}, "big-endian"),
        ({b"": b"\x08\x00"}, "has no header"),
        ({b"x" * i: b"" for i in range(1, 1002)}, "more than 1000 bytes"),
    ],
)
def test_an_index_that_is_wrong(entries, message, tmp_path):
    write_index(tmp_path / "x.index", {b"": b"\x08\x01", **entries})
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=f"x.*{message}"):
        read_index(tmp_path / "x")["x"].open()


def test_an_index_that_few_bytes_make_large(tmp_path):
    write_index(tmp_path / "x.index", {b"": b"\x08\x01"}, compression=1)
    with pytest.raises(ValueError, match="compressed blocks"):
        read_index(tmp_path / "x")
    os.truncate(tmp_path / "x.index", 2**40)
    with pytest.raises(ValueError, match="x.index: .* not the index"):
        read_index(tmp_path / "x")


def test_every_damaged_byte_and_every_cut_is_found(tmp_path):
    folder = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    data = bytearray((folder / DATA).read_bytes())
    data[30_000] ^= 1
    (folder / DATA).write_bytes(data)
    with pytest.raises(ValueError, match=f"{DATA}: a checksum is wrong"):
        for variable in read_index(folder / PREFIX).values():
            variable.open()
    (folder / DATA).unlink()
    with pytest.raises(FileNotFoundError, match=f"{DATA}: this file"):
        read_index(folder / PREFIX)["global_step"].open()
    index = folder / f"{PREFIX}.index"
    sound = index.read_bytes()
    # The padding between the handles and the magic number has no meaning.
    meaningful = [*range(len(sound) - 42), *range(len(sound) - 8, len(sound))]
    damaged = [sound[:size] for size in (0, 10, 100, 2000, -1)]
    for place in meaningful[::13] + meaningful[-40:]:
        damaged.append(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])
    for content in damaged:
        index.write_bytes(content)
        with pytest.raises(ValueError, match=r"index: .*(damaged|not the index)"):
            read_index(folder / PREFIX)
