"""
Read HDF5 files of weights that anybody may have written: a file is opened only if it contains all
its data, and if their size, unpacked, is in proportion to that of the file.
"""

import math
import os
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple, Union

import numpy

from allennlp_elmo_plugin.files.json_file import shown

Path = Union[str, "os.PathLike[str]"]

MAX_EXPANSION = 100
"""How many times its size a compressed file may unpack to. Trained weights hardly compress."""

# Numbers that are read at a time: few enough for the processor's cache.
_BLOCK = 2**19
# Deflate, shuffle, Fletcher's checksum, LZF: what comes with h5py. Others are plug-ins, which HDF5
# loads by the number in the file.
_FILTERS = {1, 2, 3, 32000}


def allowance(size: int) -> int:
    """
    Return how many bytes a compressed file of this size may unpack to: 64 MiB in any case.
    """
    return max(64 * 2**20, MAX_EXPANSION * size)


@contextmanager
def open_weight_file(path: Path) -> Iterator[Any]:
    """
    Open an HDF5 file for reading.

    # Raises

    `FileNotFoundError`, or `ValueError` that names the file and what is wrong with it: no HDF5, cut
    off, with links or data in other files, or smaller than its data.
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


def float_blocks(
    dataset: Any, path: Path, out: Optional[numpy.ndarray] = None
) -> Iterator[Tuple[int, numpy.ndarray]]:
    """
    Yield a dataset of the file at `path` as float32, in blocks of rows, each with the number of its
    first row. With `out`, which has the dataset's shape, read the whole dataset to it at once.

    # Raises

    `ValueError` that names the file and the dataset.
    """
    # A single read is faster than several, but needs memory for all.
    n_numbers = _BLOCK if out is None else math.prod(dataset.shape)
    n_rows = max(1, n_numbers // max(1, math.prod(dataset.shape[1:])))
    if dataset.chunks is not None:  # each of which is to be decompressed once
        n_rows += -n_rows % dataset.chunks[0]
    for start in range(0, dataset.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, dataset.shape[0]))
        shape = rows.stop - start, *dataset.shape[1:]
        block = numpy.empty(shape, "float32") if out is None else out[rows]
        try:
            if block.size:
                dataset.read_direct(block, rows)
        except Exception as error:  # h5py has no class for the errors of HDF5
            raise ValueError(
                f"{path}: the dataset '{shown(dataset.name, 200)}' can't be read, the file is "
                f"damaged ({shown(error, 200)})"
            ) from error
        yield start, block


def is_float(item: Any) -> bool:
    """
    Return whether this is a dataset of floating-point numbers.
    """
    try:
        return item.shape is not None and item.dtype.kind == "f"
    except (AttributeError, TypeError, ValueError):  # a group, a type that NumPy lacks
        return False


def type_name(dataset: Any) -> str:
    """
    Return the type of a dataset's values for errors, such as int32.
    """
    import h5py

    if dataset.shape is None:
        return "empty"
    try:
        dtype = dataset.dtype
    except (TypeError, ValueError):  # that NumPy lacks
        return "unknown"
    return shown(dtype) if h5py.check_string_dtype(dtype) is None else "string"


def _check(weight_file: Any, path: Path) -> None:
    import h5py

    links: List[Tuple[bytes, int]] = []
    file_size = os.path.getsize(path)
    total = 0
    try:
        # Links are only listed here: none is followed.
        weight_file.id.links.visit(lambda name, info: links.append((name, info.type)), info=True)
        for stored_name, kind in links:
            name = f"'{shown(stored_name.decode('utf-8', 'replace'), 200)}'"
            if kind != h5py.h5l.TYPE_HARD:
                raise _Refused(
                    f"{path}: {name} is a link to another place or file, which is not followed; "
                    "write the file with the datasets themselves"
                )
            item = h5py.h5o.open(weight_file.id, stored_name)
            if isinstance(item, h5py.h5d.DatasetID):
                total += _n_bytes(item, name, file_size, path)
    except _Refused:
        raise
    except Exception as error:  # as in `float_blocks`
        raise ValueError(
            f"{path}: not an HDF5 file, or one cut off ({shown(error, 200)})"
        ) from error
    if total > allowance(file_size):
        raise ValueError(
            f"{path}: its datasets take {total:,} bytes, more than {MAX_EXPANSION} times the "
            f"file's {file_size:,}; write the file without compression"
        )


class _Refused(ValueError):
    """
    An error that already names the file and the dataset.
    """


def _n_bytes(dataset: Any, name: str, file_size: int, path: Path) -> int:
    """
    Return how many bytes of memory it needs to read a dataset.
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
