"""Read untrusted files of `torch.save` as data: nothing that they name is imported or run."""

import os
import pickle
import re
import zipfile
from collections.abc import Iterable
from typing import Any

import torch

from allennlp_elmo_plugin.files.json_file import escaped


def read_checkpoint(path: str | os.PathLike[str], advice: str) -> Any:
    """Return what `torch.save` wrote. Raise a `ValueError` with advice if the file has changed."""
    with open(path, "rb") as file:
        try:
            if damaged := zipfile.ZipFile(file).testzip():  # torch ignores the checksums.
                raise ValueError(f"another checksum of {damaged}")
            # Not with mmap: the optimizer would keep tensors of a file that is replaced.
            return torch.load(path, map_location="cpu")
        except (MemoryError, pickle.UnpicklingError):  # The file is sound.
            raise
        except Exception as error:  # zipfile documents few of those that damaged files cause
            raise ValueError(f"{path}: damaged ({escaped(error, 200)}); {advice}") from error


def read_tensors(path: str | os.PathLike[str], part: str | None = None) -> dict[str, torch.Tensor]:
    """
    Return a state dict of floating-point tensors, or the one that a file has as `part`. If torch >=
    1.6 wrote it, they are mapped to memory, except on Windows, where the file could then not be
    removed.
    """
    size, advice = os.path.getsize(path), "use weights that torch.save wrote from a state dict"
    try:
        if not os.path.isfile(path):
            raise ValueError("a folder, a device or a pipe")
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type for entry in archive.infolist()):
                    # Mapped, the numbers would be those of the compressed bytes.
                    raise ValueError("compressed, which torch.save never does")
        mmap = is_zip and os.name != "nt"
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if part is not None:
            values = values[part]
    except Exception as error:  # torch documents none of those that damaged files cause
        program = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            f"{path}: damaged, or contains something other than tensors, which could run code; "
            f"{advice} ({escaped(program[1] if program else error, 200)})"
        ) from None
    tensors: Iterable[Any] = values.values() if isinstance(values, dict) else [None]
    for tensor in tensors:
        is_plain = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
        if not is_plain or tensor.device.type != "cpu" or not tensor.is_floating_point():
            raise ValueError(f"{path}: not a dictionary of floating-point tensors; {advice}")
    # Twice, since the softmax may share the token embedding's numbers.
    if sum(tensor.nbytes for tensor in tensors) > 2 * size:
        raise ValueError(f"{path}: has fewer numbers than its tensors; {advice}")
    return {str(name): tensor.detach() for name, tensor in values.items()}
