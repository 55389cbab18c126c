import signal
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training import Checkpointer
from allennlp.training.trainer import TrainerCheckpoint

from allennlp_elmo_plugin.exits import Terminated
from allennlp_elmo_plugin.plugin.training.checkpointer import WholeCheckpointer
from tests.support.process_group import run_processes
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
    """Before the first checkpoint there is nothing to recover."""
    saving = WholeCheckpointer(str(tmp_path))

    def save(hint):
        limit_file_size(3000)
        with pytest.raises(OSError, match=f"File too large; make room, and {hint}") as error:
            saving.save_checkpoint(trainer(0, 10))
        assert error.value.filename == str(tmp_path / "model_state_e0_b10.th")

    assert fork(lambda: save("start again")) == 0
    saving.save_checkpoint(trainer(0, 5))
    assert fork(lambda: save("continue with `allennlp train --recover`")) == 0
    assert points(tmp_path) == [(0, 5)]
    saving.save_checkpoint(trainer(0, 10))
    assert points(tmp_path) == [(0, 5), (0, 10)]


def test_by_time_and_batches(tmp_path):
    every = {"save_every_num_seconds": 600, "save_every_num_batches": 5}
    saving = WholeCheckpointer(tmp_path, **every, keep_most_recent_by_count=None)
    saved = []
    for batch in range(1, 17):
        saving._last_save_time -= 250  # seconds
        if saving.maybe_save_checkpoint(trainer(0, batch), 0, batch):
            saved.append(batch)
    assert saved == [3, 6, 9, 12, 15]
    saving.seconds = None
    saving._last_save_time = 0
    assert not saving.maybe_save_checkpoint(trainer(0, 19), 0, 19)
    assert saving.maybe_save_checkpoint(trainer(0, 20), 0, 20)
    assert saving.maybe_save_checkpoint(trainer(1, 0), 1, 0)  # the end of an epoch
    assert points(tmp_path) == [(0, n) for n in (*saved, 20)] + [(1, 0)]


def _saved_together(rank, folder):
    """The last of three processes has the folder of the one before, which saves for both."""
    settings = {"save_every_num_seconds": 600, "keep_most_recent_by_count": 1}
    saving = WholeCheckpointer(str(folder / str(min(rank, 1))), **settings)
    saved = []
    for n in (1, 2, 3):
        saving._last_save_time -= 700 * (rank == n == 2)
        saved.append(saving.maybe_save_checkpoint(trainer(0, n, rank < 2), 0, n))
    saving.signals += [signal.SIGTERM] * (rank == 1)
    with pytest.raises(Terminated if rank == 1 else KeyboardInterrupt):
        saving.maybe_save_checkpoint(trainer(0, 4, rank < 2), 0, 4)
    return saved


def test_all_processes_save_after_the_same_batch(tmp_path):
    folders = tmp_path / "0", tmp_path / "1"
    for folder in folders:
        folder.mkdir()
    assert run_processes(3, tmp_path, _saved_together, tmp_path) == [[False, True, False]] * 3
    assert [points(folder) for folder in folders] == [[(0, 4)]] * 2
