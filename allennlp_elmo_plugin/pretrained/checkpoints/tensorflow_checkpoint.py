"""
TensorFlow V2 checkpoints, such as those of bilm-tf, read without TensorFlow.

`PREFIX.index` is a table in the format of LevelDB: sorted blocks of keys, each written as the
difference from the key before, and an index of the blocks. Its values are protocol buffers
(TensorFlow's `BundleEntryProto`): where in `PREFIX.data-00000-of-0000N` the little-endian values of
a variable are. Every block and every variable has a CRC32C checksum, which is verified if
google-crc32c is installed.
"""

import math
import os
import re
import struct
from collections.abc import Iterator
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.files.json_file import escaped
from allennlp_elmo_plugin.pretrained.file_names import find_checkpoint_names

_FOOTER_SIZE = 48
_MAGIC = 0xDB4775248B80FB57
# TensorFlow's numbers for types, those that variables have.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
# Limits, as few bytes of an index can describe much. bilm-tf's largest has 60 variables in 6 KB.
_MAX_INDEX_BYTES = 2**20
_MAX_NAME_BYTES = 1000
_MAX_DIMENSIONS = 32


class Entry(NamedTuple):
    """An entry of the index: the type and shape of a variable, and its place in a data file."""

    dtype: int
    shape: tuple[int, ...]
    file: str
    offset: int
    size: int
    checksum: int

    @property
    def is_float(self) -> bool:
        return _DTYPES.get(self.dtype, "")[1:2] == "f"

    def check(self) -> np.dtype:
        """Return the type of the numbers, after comparing their size with that of the file."""
        dtype = np.dtype(_DTYPES.get(self.dtype, "V1"))
        if dtype.kind == "V" or self.size != math.prod(self.shape) * dtype.itemsize:
            text = f"in {self.size} bytes of TensorFlow's type {self.dtype} in shape {self.shape}"
            raise ValueError(f"{self.file}: can't read a variable in parts, or {text}")
        if not os.path.isfile(self.file):
            raise FileNotFoundError(f"{self.file}: this file of the checkpoint is missing")
        if self.offset + self.size > os.path.getsize(self.file):
            raise ValueError(f"{self.file}: is cut off")
        return dtype

    def open(self) -> np.ndarray:
        """Map the variable to memory, and compare its checksum."""
        dtype = self.check()
        if not self.size:
            return np.empty(self.shape, dtype)
        array = np.memmap(self.file, dtype, "c", self.offset, self.shape)
        if not _is_whole(array, self.checksum):
            raise ValueError(f"{self.file}: a checksum is wrong, so the file is damaged")
        return array


def read_index(prefix: PathLike) -> dict[str, Entry]:
    """Return the entries of a checkpoint's index by the names of the variables."""
    path = f"{os.fspath(prefix).removesuffix('.index')}.index"
    table = b""
    if os.path.isfile(path) and os.path.getsize(path) <= _MAX_INDEX_BYTES:
        table = Path(path).read_bytes()
    if len(table) < _FOOTER_SIZE or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise ValueError(f"{path}: missing, cut off, or not the index of a V2 checkpoint")
    try:
        # The offset and size of an empty block for metadata, and of the index of the others.
        footer = _varints(table[-_FOOTER_SIZE:], 0, 4)
        list(_block(table, *footer[:2]))
        handles = [_varints(value, 0, 2) for _, value in _block(table, *footer[2:4])]
        if sum(size for _, size, _ in handles) > len(table):
            raise ValueError("its blocks overlap")
        blocks = [_block(table, offset, size) for offset, size, _ in handles]
        values = {key: dict(_fields(value)) for block in blocks for key, value in block}
        header = values.pop(b"", {})
        n_files = index(header.get(1, 0))
        if not n_files or header.get(2):
            raise ValueError("it has no header, or is from a big-endian machine")
        return {
            key.decode("utf-8"): _entry(fields, path.removesuffix(".index"), n_files)
            for key, fields in values.items()
        }
    except (LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise ValueError(f"{path}: is damaged ({escaped(error, 200)})") from error


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    end = offset + size
    compression, checksum = struct.unpack_from("<BI", table, end)
    if not _is_whole(table[offset : end + 1], checksum):
        raise ValueError("the checksum of a block is wrong")
    if compression:
        raise ValueError("it has compressed blocks, which TensorFlow's Saver does not write")
    block = table[offset:end]
    # The block ends with places where reading can start, and their number.
    last = size - 4 * (struct.unpack_from("<I", block, size - 4)[0] + 1)
    key, place = b"", 0
    while place < last:
        n_shared, n_new, n_value, place = _varints(block, place, 3)
        key = key[:n_shared] + block[place : place + n_new]
        place += n_new + n_value
        if place > last or len(key) > _MAX_NAME_BYTES:
            raise ValueError("an entry is cut off, or has a name of more than 1000 bytes")
        yield key, block[place - n_value : place]


def _entry(fields: dict[int, Any], prefix: str, n_files: int) -> Entry:
    sizes = [dict(_fields(size)) for number, size in _fields(fields.get(2, b"")) if number == 2]
    shape = tuple(index(size.get(1, 0)) for size in sizes)
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError("it has a shape that no variable has")
    # Field 7 describes the parts of a variable.
    dtype = 0 if 7 in fields else index(fields.get(1, 0))
    number, offset, size, checksum = (index(fields.get(number, 0)) for number in (3, 4, 5, 6))
    return Entry(
        dtype, shape, f"{prefix}.data-{number:05d}-of-{n_files:05d}", offset, size, checksum
    )


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer: each one's number and its value, a number or bytes."""
    place = 0
    while place < len(message):
        tag, place = _varints(message, place, 1)
        value: Any
        if tag & 7 == 5:
            (value,) = struct.unpack_from("<I", message, place)
            place += 4
        elif tag & 7 in (0, 2):
            value, place = _varints(message, place, 1)
            if tag & 7 == 2:
                place += value
                value = message[place - value : place]
        else:
            raise ValueError(f"a field of wire type {tag & 7}")
        yield tag >> 3, value


def _varints(data: bytes, place: int, count: int) -> tuple[int, ...]:
    """Return `count` numbers of seven bits a byte from `place` on, and the place after them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while shift == 0 or data[place - 1] >= 0x80:
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
            number |= (data[place] & 0x7F) << shift
            place, shift = place + 1, shift + 7
        numbers.append(number)
    return (*numbers, place)


def _is_whole(data: Any, stored: int) -> bool:
    """Return whether data have the checksum that was stored, if there is the package to tell."""
    try:
        from google_crc32c import value as crc32c
    except ImportError:
        return True
    checksum = crc32c(data)
    # The form in which it is stored, as data may contain checksums themselves.
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF == stored


def find_checkpoint(folder: Path) -> Path | None:
    """
    Return the prefix of the files of the only V2 checkpoint in a folder, or of the one that the
    file `checkpoint` names, wherever the folder was before; `None` if there is neither.
    """
    prefixes = find_checkpoint_names(folder)
    named = prefixes[0] if len(prefixes) == 1 else None
    if (folder / "checkpoint").is_file():
        with open(folder / "checkpoint", encoding="utf-8", errors="replace") as file:
            match = re.search(r'^[ \t]*model_checkpoint_path *: *"(.*)"', file.read(2**20), re.M)
        named = os.path.basename(match[1]) if match else ""
    elif not prefixes:
        return None
    if named not in prefixes:
        raise FileNotFoundError(
            f"{folder}: the file `checkpoint` names {named!r}; of TensorFlow's V2 checkpoints "
            f"(*.index, *.data-*) there are {prefixes}; give the path of one, without .index"
        )
    return folder / str(named)
