import io
import os
import pickle
import zipfile

import pytest
import torch

from allennlp_elmo_plugin.files.tensors import read_tensors


class Program:
    """Runs when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.th"


def test_is_what_was_saved(path):
    state = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LayerNorm(3)).state_dict()
    table = torch.randn(6, 4)
    state["transposed"] = table.t()
    state["tied"], state["slice"], state["strided"] = table, table[2:4], table[::2, 1]
    state["parameter"] = torch.nn.Parameter(torch.randn(3))
    state["scalar"], state["empty é"] = torch.tensor(2.0), torch.empty(0, 3)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        state[str(dtype)] = torch.randn(3).to(dtype)
    torch.save(state, path)
    read = read_tensors(path)
    assert list(read) == list(state)
    for name, expected in state.items():
        assert torch.equal(read[name], expected) and read[name].dtype == expected.dtype, name
        assert not read[name].requires_grad
    assert read["tied"].data_ptr() == read["transposed"].data_ptr()


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_is_run(legacy, path, tmp_path):
    for program in (
        Program(os.system, f"touch {tmp_path}/ran"),
        Program(eval, f"open('{tmp_path}/ran', 'w')"),
        Program(torch._utils._rebuild_tensor_v2, Program(os.system, f"touch {tmp_path}/ran")),
    ):
        state = {"weight": torch.ones(3), "program": program}
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(ValueError, match="weights.th: damaged, or contains something else"):
            read_tensors(path)
        path.write_bytes(pickle.dumps(program))
        with pytest.raises(ValueError, match="weights.th: damaged, or contains something else"):
            read_tensors(path)
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "state, message",
    [
        ([1], "not a dictionary of floating-point tensors"),
        ({"a": {"b": torch.ones(3)}}, "not a dictionary of floating-point tensors"),
        ({"a": torch.arange(3)}, "not a dictionary of floating-point tensors"),
        ({"a": torch.ones(3).to_sparse()}, "not a dictionary of floating-point tensors"),
        ({"a": torch.ones(3, device="meta")}, "not a dictionary of floating-point tensors"),
        ({"a": torch.ones(1).expand(2**40)}, "has fewer numbers than its tensors"),
        ({str(i): torch.ones(999).expand(3, 999) for i in range(9)}, "has fewer numbers than"),
        ({"a": Program(torch.Tensor, 2**20)}, "has fewer numbers than its tensors"),
        (torch.nn.Linear(2, 3), "something else .*torch.nn.modules.linear.Linear"),
    ],
)
def test_something_else_than_tensors_is_refused(state, message, path):
    torch.save(state, path)
    with pytest.raises(ValueError, match=f"weights.th: .*{message}"):
        read_tensors(path)


def rewrite(path, change, **kwargs):
    """Write the archive again, with some of its files changed."""
    torch.save({"a": torch.ones(3, 4)}, path)
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as source:
        files = {name: source.read(name) for name in source.namelist()}
    change(files, next(name for name in files if name.endswith("data.pkl"))[: -len("data.pkl")])
    with zipfile.ZipFile(path, "w", **kwargs) as made:
        for name, data in files.items():
            made.writestr(name, data)


def edit_pickle(new):
    shape = b"K\x03K\x04\x86"

    def change(files, folder):
        assert shape in files[f"{folder}data.pkl"]
        files[f"{folder}data.pkl"] = files[f"{folder}data.pkl"].replace(shape, new)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda files, folder: files.pop(f"{folder}data/0"),
        lambda files, folder: files.pop(f"{folder}data.pkl"),
        edit_pickle(b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"),
        edit_pickle(b"K\x30K\x30\x86"),
        # Tuples of tuples: 10 billion items that are one.
        edit_pickle(b"K\x00\x85" + b"q\xf0h\xf0h\xf0\x86" * 33),
    ],
    ids=["no tensor", "no pickle", "huge shape", "larger shape", "tuples"],
)
def test_damaged_archives(change, path):
    rewrite(path, change)
    with pytest.raises(ValueError, match="weights.th: damaged, or contains something else"):
        read_tensors(path)


def test_compressed_numbers_would_be_other_ones(path):
    rewrite(path, lambda *_: None)
    assert torch.equal(read_tensors(path)["a"], torch.ones(3, 4))
    rewrite(path, lambda *_: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="weights.th: .*compressed, which torch.save never does"):
        read_tensors(path)


def test_cut_off(path):
    torch.save({"a": torch.ones(300)}, path)
    sound = path.read_bytes()
    for size in (0, 1, 100, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:size])
        with pytest.raises(ValueError, match="weights.th: damaged"):
            read_tensors(path)
