from typing import Any
from unittest.mock import Mock

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training import Checkpointer
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.plugin.training.checkpointer import WholeCheckpointer
from tests.support.testing import fork, limit_file_size, read_files

KINDS = ["model", "training"]


def trainer(n_epochs, n_batches, saves=True):
    """The part of a trainer that the checkpointer reads."""
    values = {"epochs_completed": n_epochs, "batches_in_epoch_completed": n_batches}
    state = TrainerCheckpoint({"weight": torch.full((2000,), float(n_batches))}, values)
    return Mock(get_checkpoint_state=lambda: state if saves else None, cuda_device="cpu")


def points(folder):
    return sorted(WholeCheckpointer(str(folder))._find_all_checkpoints())


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_one_that_has_both_files_is_loaded(tmp_path, kind):
    folder = tmp_path / "run[1]*"  # special characters of a glob
    folder.mkdir()
    saving = WholeCheckpointer(folder)
    for n_batches in (5, 10):
        saving.save_checkpoint(trainer(0, n_batches))
    names = {f"{name}_state_e0_b{n}.th" for name in KINDS for n in (5, 10)}
    assert set(read_files(folder)) == names
    loaded = saving.load_checkpoint()
    assert loaded is not None and loaded.trainer_state["batches_in_epoch_completed"] == 10
    assert loaded.model_state["weight"].tolist() == [10.0] * 2000
    inodes = [path.stat().st_ino for path in sorted(folder.iterdir())]
    saving.save_checkpoint(trainer(0, 10))  # An existing one is not written again.
    assert [path.stat().st_ino for path in sorted(folder.iterdir())] == inodes
    (folder / f"{kind}_state_e0_b10.th").unlink()
    assert points(folder) == [(0, 5)]
    saving.save_checkpoint(trainer(0, 10))
    assert points(folder) == [(0, 5), (0, 10)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_byte_is_noticed(tmp_path, kind):
    """Until the file is removed; then the checkpoint before is loaded."""
    saving = WholeCheckpointer(tmp_path)
    for n_batches in (5, 10):
        saving.save_checkpoint(trainer(0, n_batches))
    path = tmp_path / f"{kind}_state_e0_b10.th"
    content = bytearray(path.read_bytes())
    content[content.index(b"batches_in" if kind == "training" else b"\0\0\x20\x41") + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ConfigurationError, match=f"{path}: damaged .* remove it and repeat the com"
    ):
        saving.load_checkpoint()
    path.unlink()
    loaded = saving.load_checkpoint()
    assert loaded is not None and loaded.model_state["weight"].tolist() == [5.0] * 2000
    assert WholeCheckpointer(tmp_path.parent).load_checkpoint() is None


@pytest.mark.parametrize("keep", [1, 2, None])
def test_old_ones_are_removed(tmp_path, keep):
    """Batch 5 is not confused with batches 50 and 53."""
    params = Params({"keep_most_recent_by_count": keep})
    saving: Any = Checkpointer.from_params(params, serialization_dir=str(tmp_path))
    saved = [(0, 1), (0, 5), (0, 50), (0, 53), (1, 5)]
    for point in saved:
        saving.save_checkpoint(trainer(*point))
    assert points(tmp_path) == saved[-(keep or 5) :]
    assert len(list(tmp_path.iterdir())) == 2 * len(points(tmp_path))


def test_full_disk(tmp_path):
    saving = WholeCheckpointer(str(tmp_path))

    def save():
        limit_file_size(3000)
        with pytest.raises(OSError, match="File too large; make room, and continue with") as error:
            saving.save_checkpoint(trainer(0, 10))
        assert error.value.filename == str(tmp_path / "model_state_e0_b10.th")

    saving.save_checkpoint(trainer(0, 5))
    assert fork(save) == 0
    assert points(tmp_path) == [(0, 5)]
    saving.save_checkpoint(trainer(0, 10))
    assert points(tmp_path) == [(0, 5), (0, 10)]


def test_another_process_of_distributed_training_saves_nothing(tmp_path):
    WholeCheckpointer(str(tmp_path)).save_checkpoint(trainer(0, 5, saves=False))
    assert points(tmp_path) == []
