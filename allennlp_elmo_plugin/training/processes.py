"""What the processes of distributed training do together."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def joined_processes(cuda_device: int | None) -> Iterator[str]:
    """Join the processes that torchrun started, and yield the device of this one."""
    n_processes, local_rank, n_local = (
        int(os.environ.get(name, default))
        for name, default in (("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    )
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    first = (0 if n_gpus else -1) if cuda_device is None else cuda_device
    device = "cpu" if first < 0 else f"cuda:{(first + local_rank) % max(n_gpus, first + 1)}"
    if first >= 0:
        torch.cuda.set_device(device)
    if n_processes == 1:
        yield device
        return
    # NCCL needs a GPU for each process.
    has_nccl = first >= 0 and n_gpus >= n_local
    dist.init_process_group("cpu:gloo,cuda:nccl" if has_nccl else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Return the number of this process, 0 if it is the only one."""
    return dist.get_rank() if world_size() > 1 else 0


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def check_same(what: str, value: object) -> None:
    """Raise a `ValueError` in all processes unless they have the same value, of plain types."""
    values: list[object] = [None] * world_size()
    dist.all_gather_object(values, value)
    ranks = [str(number) for number, other in enumerate(values) if other != values[0]]
    if ranks:
        raise ValueError(
            f"{what} of rank {', '.join(ranks)} differs from that of rank 0: copy the files of one "
            "machine to the others"
        )


def sum_over_processes(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of numbers over all processes."""
    if world_size() > 1:
        values = values.cuda() if dist.get_backend() == "nccl" else values.clone()
        dist.all_reduce(values)
    return values


def average_dense_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Replace gradients by their means over all processes; a missing one counts as zeros."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    sizes = [gradient.numel() for gradient in gradients]
    for parameter, gradient, values in zip(parameters, gradients, flat.split(sizes)):
        parameter.grad = values.view_as(gradient)


def average_sparse_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """
    Replace sparse gradients by their means over all processes. Each process calls this before an
    update, and all get the same numbers, to the bit. Only the rows that some process has are sent.
    """
    world_size = dist.get_world_size()
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            no_rows = torch.zeros(1, 0, dtype=torch.long, device=parameter.device)
            gradient = torch.sparse_coo_tensor(no_rows, parameter.detach()[:0], parameter.shape)
        gradient = gradient.coalesce()
        own = gradient.indices()[0]
        is_used = torch.zeros(len(parameter), dtype=torch.uint8, device=parameter.device)
        is_used[own] = 1
        dist.all_reduce(is_used, dist.ReduceOp.MAX)
        rows = is_used.nonzero()[:, 0]  # (n_used,)
        values = parameter.detach().new_zeros(len(rows), *parameter.shape[1:])
        values[torch.searchsorted(rows, own)] = gradient.values()
        if len(rows):  # gloo crashes on empty tensors.
            dist.all_reduce(values)
            values /= world_size
        parameter.grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, parameter.shape)
        parameter.grad._coalesced_(True)
