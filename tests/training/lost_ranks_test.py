"""Processes that die in a collective operation, or fail for reasons of their own."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from allennlp_elmo_plugin.training import lost_ranks
from allennlp_elmo_plugin.training.lost_ranks import lost_ranks_named
from tests.support.process_group import run_processes


def _lose(rank: int, port: int, folder: Path, lost: int) -> None:
    torch.set_num_threads(1)
    lost_ranks._SECONDS = 3.0
    # Unlike a file, this store is gone with the first process.
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=3, rank=rank)
    dist.barrier()
    if rank == lost:
        os._exit(0)
    messages = []
    for _ in range(2):  # A second failure is not taken for the first.
        with pytest.raises(ConnectionError) as error, lost_ranks_named():
            dist.all_reduce(torch.zeros(3))
        messages.append(str(error.value))
    (folder / f"{rank}").write_text("\n".join(messages), encoding="utf-8")


@pytest.mark.parametrize("lost", [0, 1])
def test_names_the_lost(tmp_path: Path, lost: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(_lose, (port, tmp_path, lost), 3, start_method="fork")
    for rank in {0, 1, 2} - {lost}:
        message = f"connection to rank {lost} of the 3 processes (rank {rank} noticed it)"
        for line in (tmp_path / f"{rank}").read_text(encoding="utf-8").splitlines():
            assert message in line


def _fail(rank: int, error: Any) -> None:
    with lost_ranks_named():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory"),
        RuntimeError("no such file: /home/gloo/text.txt:12"),
        ValueError("nan loss encountered"),
    ],
)
def test_other_errors_stay(tmp_path: Path, error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rank: int) -> str:
        with pytest.raises(type(error)) as raised:
            _fail(rank, error)
        return str(raised.value)

    monkeypatch.setattr(lost_ranks, "find_lost_ranks", None)  # is not asked
    assert run_processes(2, tmp_path, fail) == [str(error)] * 2


def _fail_alike(rank: int) -> str:
    """An error of a collective operation that no process is lost by."""
    error = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length")
    with pytest.raises(RuntimeError) as raised:
        _fail(rank, error)
    return str(raised.value)


def test_nobody_is_lost(tmp_path: Path) -> None:
    assert all("op.preamble" in message for message in run_processes(2, tmp_path, _fail_alike))


def test_one_process() -> None:
    with pytest.raises(RuntimeError, match="gloo/gloo"):
        _fail(0, RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:446] of a user's"))
