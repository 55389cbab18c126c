"""Processes that talk to each other through torch.distributed."""

import os
import pickle

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _run(rank, world_size, folder, function, arguments):
    torch.set_num_threads(1)
    method = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", method, world_size=world_size, rank=rank)
    result = function(rank, *arguments)
    with open(os.path.join(folder, f"{rank}.pickle"), "wb") as file:
        pickle.dump(result, file)
    dist.barrier()


def run_processes(world_size, folder, function, *arguments):
    """Return what a function, called with the rank, returns in each process of a group."""
    if os.name == "nt":
        pytest.skip("Windows can't fork")
    args = world_size, str(folder), function, arguments
    mp.start_processes(_run, args, world_size, start_method="fork")
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(world_size)]
