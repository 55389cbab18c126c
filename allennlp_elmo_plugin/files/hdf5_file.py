"""Read untrusted HDF5 files of weights."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allennlp_elmo_plugin.files.json_file import escaped

MAX_EXPANSION = 100
"""How many times its size a compressed file may unpack to. Trained weights hardly compress."""

_MAX_OBJECTS, _MAX_NAME_LENGTH = 10_000, 1000


def allowance(size: int) -> int:
    """Return how many bytes a compressed file of this size may unpack to: at least 64 MiB."""
    return max(64 * 2**20, MAX_EXPANSION * size)


@contextmanager
def open_weight_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """
    Open an HDF5 file for reading. Raise `FileNotFoundError` or `ValueError` unless it contains all
    its data, and these unpack to a size in proportion to the file's.
    """
    import h5py

    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such weight file")
    try:
        if not os.path.isfile(path):
            raise ValueError("a folder, a device or a pipe")
        weight_file = h5py.File(os.fspath(path), "r")
        datasets = float_datasets(weight_file)
    except Exception as error:  # h5py has no class for the errors of HDF5
        text = f"not an HDF5 file, or one cut off ({escaped(error, 200)})"
        raise ValueError(f"{path}: {text}") from error
    with weight_file:
        total = 0
        for name, dataset in datasets:
            place = f"{path}: '{escaped(name, 200)}'"
            if dataset.is_virtual or dataset.external:
                raise ValueError(f"{place} has its data in other files")
            # Uncompressed data must all be there; of compressed data, at least something.
            is_compressed = dataset.id.get_create_plist().get_nfilters() > 0
            stored = dataset.id.get_storage_size()
            if stored < (min(dataset.nbytes, 1) if is_compressed else dataset.nbytes):
                raise ValueError(
                    f"{place} takes {dataset.nbytes:,} bytes, of which {stored:,} are stored; get "
                    "the file again"
                )
            chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
            total += max(dataset.nbytes, chunk)
        if total > allowance(os.path.getsize(path)):
            raise ValueError(
                f"{path}: its datasets take {total:,} bytes, more than {MAX_EXPANSION} times the "
                "file's; write the file without compression"
            )
        yield weight_file


def float_datasets(weight_file: Any) -> list[tuple[str, Any]]:
    """Return the datasets of floating-point numbers in a file, without following links."""
    items: list[tuple[str, Any]] = []

    def add(name: str | bytes, item: Any) -> None:
        if len(items) == _MAX_OBJECTS or len(name) > _MAX_NAME_LENGTH:
            text = f"more than {_MAX_OBJECTS:,} objects, or a name longer than {_MAX_NAME_LENGTH:,}"
            raise ValueError(text)
        if isinstance(name, bytes):  # It isn't UTF-8.
            name = name.decode("utf-8", "surrogateescape")
        items.append((name, item))

    weight_file.visititems(add)
    return [(name, item) for name, item in items if is_float(item)]


def is_float(item: Any) -> bool:
    """Return whether this is a dataset of floating-point numbers."""
    try:
        return item.shape is not None and item.dtype.kind == "f"
    except (AttributeError, TypeError, ValueError):  # a group, a type that NumPy lacks
        return False
