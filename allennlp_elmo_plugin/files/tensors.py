"""
Read tensors that `torch.save` wrote, as data: nothing that the file names is imported or run.
"""

import os
import re
import zipfile
from typing import Any, Dict, Union

import torch

from allennlp_elmo_plugin.files.json_file import shown


def read_tensors(path: Union[str, "os.PathLike[str]"], source: str = "") -> Dict[str, torch.Tensor]:
    """
    Return the tensors of a state dict, by their names. The file is mapped to memory: numbers are
    read from it when they are used.

    # Parameters

    path : `str` or `os.PathLike`
    source : `str`, optional (default = `path`)
        The name of the file in errors.

    # Raises

    `ValueError` that names the file and what is wrong with it: cut off, damaged, or with anything
    in it but tensors of floating-point numbers by their names.
    """
    source = source or os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type for entry in archive.infolist()):
                # Mapped, the numbers would be those of the compressed bytes.
                raise ValueError("compressed, which torch.save never does")
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch documents none of those that damaged files cause
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(
            f"{source}: damaged, or has something else in it than tensors, which is not read, as "
            "that could run code; use weights that torch.save wrote from a state dict "
            f"({shown(found[1] if found else error, 200)})"
        ) from None
    if not isinstance(values, dict) or not all(map(_is_plain, values.values())):
        raise ValueError(
            f"{source}: not a dictionary of tensors of floating-point numbers; use weights that "
            "torch.save wrote from a state dict"
        )
    # Twice, since the softmax may share the token embedding's numbers.
    if sum(tensor.nbytes for tensor in values.values()) > 2 * os.path.getsize(path):
        raise ValueError(f"{source}: has fewer numbers than its tensors")
    return {str(name): tensor.detach() for name, tensor in values.items()}


def _is_plain(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.is_floating_point()
    )
