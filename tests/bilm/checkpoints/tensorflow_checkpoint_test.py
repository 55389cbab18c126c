import shutil
import time

import numpy as np
import pytest

from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import (
    TensorFlowCheckpoint,
    find_checkpoint,
)
from tests.support.bilm_tf import REFERENCE, load_run
from tests.support.tensorflow_checkpoint_writer import (
    mask,
    varint,
    write_checkpoint,
    write_index,
)

CHECKPOINT = REFERENCE / "checkpoint"
PREFIX = "model.ckpt-30"
DATA = f"{PREFIX}.data-00000-of-00001"


@pytest.fixture
def folder(tmp_path):
    """A copy of TensorFlow's own checkpoint."""
    for path in CHECKPOINT.glob(f"{PREFIX}*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def damage(path, place, size=1):
    data = bytearray(path.read_bytes())
    for i in range(size):
        data[place + i] ^= 0xFF
    path.write_bytes(bytes(data))


class TestReading:
    def test_is_what_tensorflow_wrote(self):
        checkpoint = TensorFlowCheckpoint(CHECKPOINT)
        _, arrays = load_run("train_charcnn")
        expected = {
            name[len(prefix) :] + slot: values
            for prefix, slot in (("final/", ""), ("accum/", "/Adagrad"))
            for name, values in arrays.items()
            if name.startswith(prefix)
        }
        assert set(checkpoint.variables) == {*expected, "global_step", "train_perplexity"}
        for name, values in expected.items():
            assert checkpoint.variables[name].shape == values.shape
            assert np.array_equal(checkpoint.read(name), values), name
        assert checkpoint.read("global_step") == 30
        assert "global_step" in checkpoint.variables

    @pytest.mark.parametrize("n_shards", [1, 3])
    @pytest.mark.parametrize("block_entries", [1, 7, 100])
    def test_shards_blocks_and_types(self, tmp_path, n_shards, block_entries):
        rng = np.random.RandomState(0)
        variables = {
            f"{'a' * (i % 4)}/{i}": rng.standard_normal((i % 5, 3)).astype("float32")
            for i in range(45)
        }
        for dtype in ("float16", "float64", "int32", "int64"):
            variables[dtype] = np.arange(-3, 4, dtype=dtype)
        variables["scalar"] = np.array(5, "int64")
        write_checkpoint(tmp_path / "x", variables, n_shards, block_entries=block_entries)
        checkpoint = TensorFlowCheckpoint(tmp_path)
        assert sorted(checkpoint.variables) == sorted(variables)
        for name, values in variables.items():
            read = checkpoint.read(name)
            assert read.dtype == values.dtype
            assert np.array_equal(read, values)

    def test_blocks_of_rows(self, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint._CHUNK_BYTES", 100
        )
        values = np.random.RandomState(0).standard_normal((40, 3)).astype("float32")
        wide = values.reshape(4, 30)
        arrays = {
            "a": values[:7],
            "b": values[:37],
            "wide": wide,
            "none": values[:0],
            "one": wide[0, 0],
        }
        write_checkpoint(tmp_path / "x", arrays)
        checkpoint = TensorFlowCheckpoint(tmp_path / "x")
        for name, n_rows in (("a", 8), ("b", 8), ("wide", 1), ("none", 1), ("one", 25)):
            expected = arrays[name].reshape(-1, *arrays[name].shape[1:])
            blocks = list(checkpoint.blocks(name))
            assert [start for start, _ in blocks] == list(range(0, len(expected), n_rows))
            for start, block in blocks:
                assert np.array_equal(block, expected[start : start + n_rows])
            assert np.array_equal(checkpoint.read(name), arrays[name])


class TestWhichCheckpoint:
    @pytest.fixture
    def two(self, tmp_path):
        for number in (1, 2):
            write_checkpoint(tmp_path / f"model.ckpt-{number}", {"x": np.array(number, "int32")})
        return tmp_path

    @pytest.mark.parametrize(
        "named",
        ["model.ckpt-1", "{folder}/model.ckpt-1", "/where/it/was/trained/model.ckpt-1"],
    )
    def test_the_file_checkpoint_says(self, two, named):
        line = f'model_checkpoint_path: "{named.format(folder=two)}"\n'
        others = 'all_model_checkpoint_paths: "model.ckpt-2"\n'
        (two / "checkpoint").write_text(line + others, encoding="utf-8")
        assert TensorFlowCheckpoint(two).read("x") == 1
        # A path given says more.
        for path in ("model.ckpt-2", "model.ckpt-2.index"):
            assert TensorFlowCheckpoint(two / path).read("x") == 2

    def test_escaped_path(self, tmp_path):
        write_checkpoint(tmp_path / "modèle", {"x": np.zeros(1, "float32")})
        escaped = r'model_checkpoint_path: "mod\303\250le"'
        (tmp_path / "checkpoint").write_text(escaped, encoding="utf-8")
        assert find_checkpoint(tmp_path) == str(tmp_path / "modèle")

    def test_bad(self, two, tmp_path):
        with pytest.raises(ValueError, match=r"\['model.ckpt-1', 'model.ckpt-2'\], and no file"):
            find_checkpoint(two)
        (two / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"')
        with pytest.raises(
            FileNotFoundError,
            match="names 'model.ckpt-3', but there is no 'model.ckpt-3.index'; .*'model.ckpt-1'",
        ):
            find_checkpoint(two)
        (two / "checkpoint").write_text("nonsense")
        with pytest.raises(ValueError, match="checkpoint: has no line `model_checkpoint_path"):
            find_checkpoint(two)
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(FileNotFoundError, match="empty: there is no TensorFlow V2 checkpoint"):
            find_checkpoint(empty)
        with pytest.raises(FileNotFoundError, match="nothing.index: there is no such"):
            find_checkpoint(two / "nothing")
        (two / "old.ckpt").write_text("V1")
        with pytest.raises(FileNotFoundError, match="old.ckpt.index: .* the old format V1"):
            find_checkpoint(two / "old.ckpt")

    @pytest.mark.parametrize(
        "text, message",
        [
            (b'model_checkpoint_path: "a\\377"', "has no line .* in UTF-8"),
            (b'model_checkpoint_path: "a\xff"', "has no line .* in UTF-8"),
            (b'model_checkpoint_path: "a\\8\\', "has no line"),
            (b'model_checkpoint_path: "\x1b[31m"', r"names '\\x1b\[31m'"),
            (b'model_checkpoint_path: "../outside/x"', "names '../outside/x'"),
            (b'model_checkpoint_path: "/{outside}/x"', "names '/"),
            (b'model_checkpoint_path: "a\\000b"', "names"),
            (b"\n" * 2**20, "has no line"),
            (b'model_checkpoint_path: "' + b"a" * 2**21, "has no line"),
        ],
    )
    def test_file_checkpoint_of_a_stranger(self, text, message, tmp_path):
        """It can't lead out of the folder."""
        for name in ("outside", "inside"):
            (tmp_path / name).mkdir()
        write_checkpoint(tmp_path / "outside" / "x", {"x": np.zeros(1, "float32")})
        outside = str(tmp_path / "outside").encode()
        (tmp_path / "inside" / "checkpoint").write_bytes(text.replace(b"/{outside}", outside))
        started = time.monotonic()
        with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
            find_checkpoint(tmp_path / "inside")
        assert str(tmp_path / "inside" / "checkpoint") in str(caught.value)
        assert str(caught.value).isprintable() and time.monotonic() - started < 5


def entry(shape, size, offset=0, dtype=1):
    dimensions = b""
    for dimension in shape:
        number = b"\x08" + varint(dimension)
        dimensions += b"\x12" + varint(len(number)) + number
    made = b"\x08" + varint(dtype) + b"\x12" + varint(len(dimensions)) + dimensions
    return made + b"\x20" + varint(offset) + b"\x28" + varint(size)


class TestBadInput:
    @pytest.mark.parametrize(
        "made, message",
        [
            (entry([2**20, 2**20], 2**42), "00001: is cut off in the middle of 'x'"),
            (entry([5], 20, offset=2**63), "00001: is cut off in the middle of 'x'"),
            (entry([2**40, 2**40], 20), "index: 'x' can't be read: .* 20 bytes of .*type 1"),
            (entry([5], 8), r"index: 'x' can't be read: .* 8 bytes of .* in the shape \(5,\)"),
            (entry([3], 3, dtype=4), "index: 'x' can't be read: .* 3 bytes of .*type 4"),
            (b"\x08\x01\x3a\x00", "index: 'x' can't be read: it is in parts"),
            (entry([2**64 - 1], 20), "is damaged .a shape that no variable has"),
            (entry([0, 2**63], 0) + b"\x35" + mask(0), "is damaged .a shape that no variable"),
            (entry([1] * 33, 4), "is damaged .a shape that no variable has"),
            (entry([5], 20) + b"\x28" + b"\xff" * 100, "more than 64 bits"),
            (entry([5], 20) + b"\x12\x70", "a field is cut off"),
        ],
    )
    def test_sizes_are_compared_before_there_is_memory_for_them(self, made, message, tmp_path):
        write_index(tmp_path / "x.index", {b"": b"\x08\x01", b"x": made})
        (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(100))
        with pytest.raises(ValueError, match=message):
            TensorFlowCheckpoint(tmp_path).read("x")

    def test_an_index_that_grows(self, tmp_path):
        """Each name repeats the one before, so that few bytes can be many names."""
        names = {b"x" * i: b"" for i in range(1, 1002)}
        write_index(tmp_path / "x.index", {b"": b"\x08\x01", **names})
        with pytest.raises(ValueError, match="x.index: is damaged .a name of more than 1000 bytes"):
            TensorFlowCheckpoint(tmp_path / "x")
        with open(tmp_path / "x.index", "wb") as file:
            file.truncate(2**40)
        with pytest.raises(ValueError, match="x.index: not the index"):
            TensorFlowCheckpoint(tmp_path / "x")

    def test_every_damaged_byte_of_the_index_is_found(self, folder):
        index = folder / f"{PREFIX}.index"
        sound = index.read_bytes()
        # The padding between the handles and the magic number has no meaning.
        meaningful = [*range(len(sound) - 42), *range(len(sound) - 8, len(sound))]
        for place in meaningful[::13] + meaningful[-40:]:
            damage(index, place)
            with pytest.raises(ValueError, match=r"index: .*(damaged|not the index)"):
                TensorFlowCheckpoint(folder)
            index.write_bytes(sound)

    @pytest.mark.parametrize("size", [0, 10, 100, 2000, -1])
    def test_index_cut_off(self, folder, size):
        index = folder / f"{PREFIX}.index"
        index.write_bytes(index.read_bytes()[:size])
        with pytest.raises(ValueError, match="index: not the index of a TensorFlow checkpoint"):
            TensorFlowCheckpoint(folder)

    def test_data_damaged(self, folder):
        damage(folder / DATA, 30_000)
        checkpoint = TensorFlowCheckpoint(folder)
        n_wrong = 0
        for name in checkpoint.variables:
            try:
                checkpoint.read(name)
            except ValueError as error:
                assert f"{DATA}: the checksum of {name!r} is wrong" in str(error)
                n_wrong += 1
        assert n_wrong == 1

    def test_data_cut_off(self, folder):
        (folder / DATA).write_bytes((folder / DATA).read_bytes()[:60_000])
        checkpoint = TensorFlowCheckpoint(folder)
        with pytest.raises(ValueError, match=f"{DATA}: is cut off in the middle of 'train_perp"):
            checkpoint.read("train_perplexity")

    def test_data_missing(self, tmp_path):
        variables = {name: np.zeros(3, "float32") for name in "abc"}
        write_checkpoint(tmp_path / "x", variables, n_shards=2)
        (tmp_path / "x.data-00001-of-00002").unlink()
        checkpoint = TensorFlowCheckpoint(tmp_path)
        assert checkpoint.read("a").shape == checkpoint.read("c").shape == (3,)
        with pytest.raises(FileNotFoundError, match="x.data-00001-of-00002: this file"):
            checkpoint.read("b")

    @pytest.mark.parametrize(
        "entries, compression, message",
        [
            ({b"": b"\x08\x01"}, 1, "compressed blocks"),
            ({b"": b"\x08\x01\x10\x01"}, 0, "big-endian"),
            ({b"x": b"\x08\x01"}, 0, "has no header"),
            ({b"": b"\x08\x01", b"x": b"\x08"}, 0, "is damaged"),
            ({b"": b"\x08\x01", b"x": b"\x0b\x01"}, 0, "wire type 3"),
            ({b"": b"\x0a\x01\x01"}, 0, "is damaged"),
        ],
    )
    def test_table(self, tmp_path, entries, compression, message):
        write_index(tmp_path / "x.index", entries, compression=compression)
        with pytest.raises(ValueError, match=message):
            TensorFlowCheckpoint(tmp_path / "x")
