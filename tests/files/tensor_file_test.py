import io
import os
import pickle
import struct
import subprocess
import time
import zipfile
from collections import OrderedDict

import pytest
import torch

from allennlp_elmo_plugin.files.tensor_file import TensorFile


class Program:
    """Runs when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.th"


def test_is_what_torch_loads(path):
    layer = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3))
    state = layer.state_dict()
    table = torch.randn(6, 4)
    state["transposed"] = table.t()
    state["tied"], state["slice"], state["strided"] = table, table[2:4], table[::2, 1]
    state["parameter"] = torch.nn.Parameter(torch.randn(3))
    state["scalar"], state["empty"] = torch.tensor(2.0), torch.empty(0, 3)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        state[str(dtype)] = torch.randn(3).to(dtype)
    for i in range(300):  # more than a byte counts
        state[f"{i} é"] = torch.randn(1)
    torch.save(state, path)
    with TensorFile(path) as file:
        assert list(file.tensors) == list(state)
        assert file.tensors["transposed"].shape == (4, 6)
        for name, expected in state.items():
            found = file.read(name)
            assert torch.equal(found, expected) and found.dtype == expected.dtype, name
            assert found.stride() == expected.stride() and not found.requires_grad
        assert file.n_numbers == 15 + 9 + 24 + 3 + 1 + 9 + 300
    with open(path, "rb") as opened, TensorFile(opened, "name") as file:
        assert torch.equal(file.read("tied"), table)
    torch.save({"a": table}, path)
    with TensorFile(path) as file:
        assert torch.equal(file.read("a"), table)


@pytest.mark.parametrize("in_a_tensor", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_nothing_is_unpickled(in_a_tensor, legacy, protocol, path, tmp_path):
    for program in (
        Program(os.system, f"touch {tmp_path}/ran"),
        Program(subprocess.Popen, ["touch", f"{tmp_path}/ran"]),
        Program(eval, f"open('{tmp_path}/ran', 'w')"),
        Program(torch.load, "other"),
    ):
        state = OrderedDict(weight=torch.ones(3), program=program)
        if in_a_tensor:
            state = OrderedDict(weight=Program(torch._utils._rebuild_tensor_v2, program))
        torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(ValueError, match="weights.th: (has something else|not a file of wei)"):
            TensorFile(path)
        assert not (tmp_path / "ran").exists()
    path.write_bytes(pickle.dumps(Program(os.system, f"touch {tmp_path}/ran")))
    with pytest.raises(ValueError, match="weights.th: not a file of weights"):
        TensorFile(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "state, message",
    [
        ([1], "something else"),
        ({"a": 1}, "'a' in it is not a tensor"),
        ({"a\x1b": 1}, r"'a\\u001b' in it is not a tensor"),
        ({"a": {"b": torch.ones(3)}}, "'a' in it is not a tensor"),
        ({1: torch.ones(3)}, "something else"),
        ({"a": torch.arange(3)}, "torch LongStorage"),
        ({"a": torch.ones(3).to_sparse()}, "something else"),
        (torch.ones(3), "is not a dictionary"),
        (torch.nn.Linear(2, 3), "something else .*torch.nn.modules.linear Linear"),
    ],
)
def test_something_else(state, message, path):
    torch.save(state, path)
    with pytest.raises(ValueError, match=f"weights.th: .*{message}"):
        TensorFile(path)


def rewrite(path, change, **kwargs):
    """Writes the archive again, with some of its files changed."""
    torch.save({"a": torch.ones(3, 4)}, path)
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as source:
        files = {name: source.read(name) for name in source.namelist()}
    change(files, next(name for name in files if name.endswith("data.pkl"))[: -len("data.pkl")])
    with zipfile.ZipFile(path, "w", **kwargs) as made:
        for name, data in files.items():
            made.writestr(name, data)


def bomb(files, folder):
    # Tuples of tuples: 10 billion items that are one.
    files[f"{folder}data.pkl"] = b"\x80\x02}K\x00\x85" + b"q\x00h\x00h\x00\x86" * 33 + b"K\x01s."


REFUSED = {
    "cut off tensor": (
        lambda files, folder: files.update({f"{folder}data/0": bytes(44)}),
        "'a' of shape .* is not wholly in it",
    ),
    "missing tensor": (
        lambda files, folder: files.pop(f"{folder}data/0"),
        "'a' of shape .* is not wholly in it",
    ),
    "huge tensor": (
        lambda files, folder: files.update(
            {
                f"{folder}data.pkl": files[f"{folder}data.pkl"].replace(
                    b"K\x03K\x04\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"
                )
            }
        ),
        "'a' of shape .* is not wholly in it",
    ),
    "big-endian": (
        lambda files, folder: files.update({f"{folder}byteorder": b"big"}),
        "big-endian",
    ),
    "no pickle": (lambda files, folder: files.pop(f"{folder}data.pkl"), "has no data.pkl"),
    "two pickles": (
        lambda files, folder: files.update({"other/data.pkl": b"."}),
        "not a file of weights",
    ),
    "long pickle": (
        lambda files, folder: files.update({f"{folder}data.pkl": bytes(2**21)}),
        "too large",
    ),
    "tuples of tuples": (bomb, "something else"),
    "dictionary in itself": (
        lambda files, folder: files.update(
            {f"{folder}data.pkl": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."}
        ),
        "'a' in it is not a tensor",
    ),
    "far memo": (
        lambda files, folder: files.update(
            {f"{folder}data.pkl": b"\x80\x02}r\xff\xff\xff\xffj\xff\xff\xff\xfe."}
        ),
        "something else",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, path):
    change, message = REFUSED[case]
    rewrite(path, change)
    started = time.monotonic()
    with pytest.raises(ValueError, match=f"weights.th: .*{message}"):
        with TensorFile(path) as file:
            file.read("a")
    assert time.monotonic() - started < 5


def test_compressed(path):
    """Then a small file could hold a large one."""
    rewrite(path, lambda *_: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="weights.th: compressed"):
        TensorFile(path)


def test_damaged_and_cut_off(path):
    torch.save({"a": torch.ones(300)}, path)
    sound = path.read_bytes()
    for size in (0, 1, 100, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:size])
        with pytest.raises(ValueError, match="weights.th: not a file of weights .*cut off"):
            TensorFile(path)
    place = sound.index(struct.pack("<3f", 1, 1, 1))
    path.write_bytes(sound[:place] + b"\1\1\1" + sound[place + 3 :])
    with TensorFile(path) as file, pytest.raises(ValueError, match="weights.th: .*is damaged"):
        file.read("a")
    with pytest.raises(ValueError, match="not a file of weights"):
        TensorFile(path.parent)
