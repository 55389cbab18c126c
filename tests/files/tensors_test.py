import io
import os
import pickle
import re
import zipfile

import pytest
import torch

from allennlp_elmo_plugin.files.tensors import read_checkpoint, read_tensors


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
    table = torch.randn(60, 40)
    state = {"transposed": table.t(), "tied": table, "slice": table[2:4], "column": table[::2, 1]}
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
        Program(torch._utils._rebuild_tensor_v2, Program(eval, f"open('{tmp_path}/ran', 'w')")),
    ):
        state = {"weight": torch.ones(3), "program": program}
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)
        for _ in range(2):
            with pytest.raises(ValueError, match="weights.th: damaged, or contains something oth"):
                read_tensors(path)
            path.write_bytes(pickle.dumps(program))
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "state, message",
    [
        ([1], "not a dictionary of floating-point tensors"),
        ({"a": {"b": torch.ones(3)}}, "not a dictionary of floating-point tensors"),
        ({"a": torch.arange(3)}, "not a dictionary of floating-point tensors"),
        ({"a": torch.ones(3).to_sparse()}, "not a dictionary of floating-point tensors"),
        ({"a": torch.ones(3, device="meta")}, "not a dictionary of floating-point tensors"),
        ({str(i): torch.ones(999).expand(3, 999) for i in range(9)}, "has fewer numbers than"),
        (torch.nn.Linear(2, 3), "something other .*torch.nn.modules.linear.Linear"),
    ],
)
def test_something_else_than_tensors_is_refused(state, message, path):
    torch.save(state, path)
    with pytest.raises(ValueError, match=f"weights.th: .*{message}"):
        read_tensors(path)


def test_compressed_or_cut_off(path):
    """Mapped, compressed numbers would be other ones."""
    torch.save({"a": torch.ones(3, 4)}, path)
    sound = path.read_bytes()
    for size in (0, 1, 100, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:size])
        with pytest.raises(ValueError, match="weights.th: damaged"):
            read_tensors(path)
    with zipfile.ZipFile(io.BytesIO(sound)) as source:
        files = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match="weights.th: .*compressed, which torch.save never does"):
        read_tensors(path)


def test_a_changed_byte_of_a_checkpoint_is_noticed(path):
    """Or it is one that means nothing, such as a date."""
    torch.save({"weight": torch.arange(9.0), "text": "words"}, path)
    sound = path.read_bytes()
    n_refused = 0
    for place in range(len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 64]) + sound[place + 1 :])
        try:
            state = read_checkpoint(path, "take another")
        except ValueError as error:
            assert re.fullmatch(f"{re.escape(str(path))}: damaged .*; take another", str(error))
            n_refused += 1
        else:
            assert state["weight"].tolist() == [*range(9)] and state["text"] == "words"
    assert n_refused > 0.5 * len(sound)  # fewer with torch 2.6
    path.write_bytes(sound[:-1])
    with pytest.raises(ValueError, match="weights.th: damaged"):
        read_checkpoint(path, "")
    torch.save(torch.nn.Linear(2, 3), path)  # It is sound.
    with pytest.raises(pickle.UnpicklingError):
        read_checkpoint(path, "")
