"""
HDF5 files of weights from anybody: opened only if everything in them lies in the file itself, and
its size, unpacked, is in proportion to that of the file.
"""

import math
import os
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Union

import numpy

from allennlp_elmo_plugin.files.json_file import shown

Path = Union[str, "os.PathLike[str]"]

MAX_EXPANSION = 100
"""How many times its size a compressed file may unpack to. Trained weights hardly compress."""
ALWAYS_ALLOWED = 64 * 2**20
"""Bytes that any file may unpack to."""

# Deflate, shuffle, Fletcher's checksum, LZF: what comes with h5py. Others are plug-ins, which HDF5
# loads by the number in the file.
_FILTERS = {1, 2, 3, 32000}


def allowance(size: int) -> int:
    """
    Return how many bytes a compressed file of this size may unpack to.
    """
    return max(ALWAYS_ALLOWED, MAX_EXPANSION * size)


@contextmanager
def open_weight_file(path: Path) -> Iterator[Any]:
    """
    Open an HDF5 file for reading.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it: no HDF5, cut
    off, with links or data that lead out of it, or with data that it doesn't hold.
    """
    import h5py

    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such weight file")
    if not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "a device or pipe"
        raise ValueError(f"{path}: is {kind}, not a weight file")
    try:
        with h5py.File(os.fspath(path), "r") as weight_file:
            _check(weight_file, path)
            yield weight_file
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(
            f"{path}: not an HDF5 file, or one cut off ({shown(error, 200)})"
        ) from error


def read_floats(
    dataset: Any, path: Path, out: Optional[numpy.ndarray] = None, rows: slice = slice(None)
) -> numpy.ndarray:
    """
    # Parameters

    dataset : `h5py.Dataset`
        Of the file at `path`.
    path : `str`
    out : `numpy.ndarray`, optional (default = a new array)
        Where to read it to: float32, of its shape.
    rows : `slice`, optional (default = all)
        The rows to read.

    # Returns

    `numpy.ndarray`
        The values as float32; `out` if given.

    # Raises

    `ValueError`
    """
    if out is None:
        n_rows = len(range(*rows.indices(dataset.shape[0]))) if dataset.shape else 0
        out = numpy.empty((n_rows, *dataset.shape[1:]) if dataset.shape else (), "float32")
    try:
        if out.size:
            dataset.read_direct(out, rows if dataset.shape else None)
    except Exception as error:  # h5py has no class of its own for what HDF5 reports
        raise ValueError(
            f"{path}: the dataset '{shown(dataset.name, 200)}' can't be read, the file is damaged "
            f"({shown(error, 200)})"
        ) from error
    return out


def is_float(item: Any) -> bool:
    """
    Return whether this is a dataset of floating-point numbers.
    """
    try:
        return item.shape is not None and item.dtype.kind == "f"
    except (AttributeError, TypeError, ValueError):  # a group, a type that NumPy lacks
        return False


def _check(weight_file: Any, path: Path) -> None:
    import h5py

    names: List[bytes] = []
    foreign: List[bytes] = []

    def visit(name: bytes, info: Any) -> None:
        # Links are only listed here: nothing is followed.
        (names if info.type == h5py.h5l.TYPE_HARD else foreign).append(name)

    file_size = os.path.getsize(path)
    total = 0
    try:
        weight_file.id.links.visit(visit, info=True)
        if foreign:
            raise _Refused(
                f"{path}: {_quoted(foreign[0])} is a link to another place or file, which is not "
                "followed; write the file with the datasets themselves"
            )
        for name in names:
            item = h5py.h5o.open(weight_file.id, name)
            if isinstance(item, h5py.h5d.DatasetID):
                total += _n_bytes(item, _quoted(name), file_size, path)
    except _Refused:
        raise
    except Exception as error:  # as above
        raise ValueError(
            f"{path}: not an HDF5 file, or one cut off ({shown(error, 200)})"
        ) from error
    if total > allowance(file_size):
        raise ValueError(
            f"{path}: its datasets take {total:,} bytes, more than {MAX_EXPANSION} times the "
            f"file's {file_size:,}; write the file without compression"
        )


def _quoted(name: bytes) -> str:
    return f"'{shown(name.decode('utf-8', 'replace'), 200)}'"


class _Refused(ValueError):
    """
    An error that names the file and the dataset already.
    """


def _n_bytes(dataset: Any, name: str, file_size: int, path: Path) -> int:
    """
    The memory that reading a dataset takes.
    """
    import h5py

    shape = dataset.shape
    if shape is None:
        return 0
    properties = dataset.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise _Refused(
            f"{path}: the dataset {name} has its data in other files, which are not read; write "
            "the file with the data in it"
        )
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if not _FILTERS.issuperset(filters):
        raise _Refused(
            f"{path}: the dataset {name} has filters {filters} of HDF5, of which only "
            f"{sorted(_FILTERS)} are read; write the file without compression"
        )
    item_size = dataset.get_type().get_size()
    n_bytes = math.prod(shape) * item_size
    # Without compression, everything must be there; with it, something.
    stored = dataset.get_storage_size()
    if stored > file_size or stored < (1 if filters and n_bytes else n_bytes):
        raise _Refused(
            f"{path}: the dataset {name} takes {n_bytes:,} bytes, of which {stored:,} are stored "
            f"in the file of {file_size:,}; get the file again, or export the model again"
        )
    if layout == h5py.h5d.CHUNKED:
        return max(n_bytes, math.prod(properties.get_chunk()) * item_size)
    return n_bytes
