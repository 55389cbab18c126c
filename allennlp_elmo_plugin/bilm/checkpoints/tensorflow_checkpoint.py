"""
TensorFlow V2 checkpoints, such as those of bilm-tf, read without TensorFlow.
"""

import math
import os
import re
import struct
from operator import index
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

import numpy

from allennlp_elmo_plugin.files.model_file_names import find_checkpoint_names

_FOOTER_SIZE = 48
_MAGIC = 0xDB4775248B80FB57
# What follows a block: its compression, and a checksum of both.
_TRAILER_SIZE = 5
# TensorFlow's numbers for types, those that variables have.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
# Bytes that are read at a time: few enough for the processor's cache.
_CHUNK_BYTES = 2**20
# Limits, as few bytes of an index can describe much. bilm-tf's largest has 60 variables in 6 KB.
_MAX_INDEX_BYTES = 2**20
_MAX_NAME_BYTES = 1000
_MAX_DIMENSIONS, _MAX_DIMENSION = 32, 2**48

_LATEST = re.compile(
    rb'^[ \t]*model_checkpoint_path[ \t]*:[ \t]*"((?:[^"\\\n]|\\.)*)"', re.MULTILINE
)


class Variable(NamedTuple):
    """
    An entry of the index: the type and shape of a variable, and its place in a data file.
    """

    dtype: int
    shape: Tuple[int, ...]
    file_number: int
    offset: int
    size: int
    checksum: int

    @property
    def is_float(self) -> bool:
        return _DTYPES.get(self.dtype, "")[1:2] == "f"


class TensorFlowCheckpoint:
    """
    The variables of a TensorFlow V2 checkpoint.

    ```python
    checkpoint = TensorFlowCheckpoint("folder")
    checkpoint.read("global_step")
    ```

    `PREFIX.index` is a table in the format of LevelDB: sorted blocks of keys, each written as the
    difference from the key before, and an index of the blocks. Its values are protocol buffers
    (`BundleEntryProto` of TensorFlow's `tensor_bundle.proto`), which describe where in the files
    `PREFIX.data-00000-of-0000N` the little-endian values of a variable are. Every block and every
    variable has a CRC32C checksum, and each is verified.

    # Parameters

    path : `str` or `os.PathLike`
        The prefix that the files share, or their folder; see `find_checkpoint`.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.prefix = find_checkpoint(path)
        self._index_file = f"{self.prefix}.index"
        self._n_files = 0
        self.variables: Dict[str, Variable] = {}
        """The entries of the index by the names of the variables, sorted."""
        self._read_index()

    def blocks(self, name: str) -> Iterator[Tuple[int, numpy.ndarray]]:
        """
        Yield a variable in blocks of rows, each with the number of its first row. Don't use the
        values before the end: the checksum is compared after the last block.

        # Raises

        What `find` raises, and `ValueError` for a data file that is damaged.
        """
        from google_crc32c import extend

        variable, dtype, data_file = self.find(name)
        row_bytes = max(1, math.prod(variable.shape[1:]) * dtype.itemsize)
        n_rows = max(1, _CHUNK_BYTES // row_bytes)
        checksum = 0
        with open(data_file, "rb") as file:
            file.seek(variable.offset)
            for start in range(0, variable.size, n_rows * row_bytes):
                chunk = file.read(min(n_rows * row_bytes, variable.size - start))
                checksum = extend(checksum, chunk)
                yield (
                    start // row_bytes,
                    numpy.frombuffer(chunk, dtype).reshape(-1, *variable.shape[1:]),
                )
        if _mask(checksum) != variable.checksum:
            raise ValueError(
                f"{data_file}: the checksum of {name!r} is wrong, so the file is damaged"
            )

    def read(self, name: str) -> numpy.ndarray:
        """
        Return a whole variable. Raises what `blocks` raises.
        """
        blocks = [block.reshape(-1) for _, block in self.blocks(name)]
        variable, dtype, _ = self.find(name)
        return numpy.concatenate([numpy.empty(0, dtype), *blocks]).reshape(variable.shape)

    def find(self, name: str) -> Tuple[Variable, numpy.dtype, str]:
        """
        Return a variable's entry in the index, its type, and its data file.

        # Raises

        `FileNotFoundError` for a missing data file; `ValueError` for one that is cut off, and for a
        variable that is in parts or whose type is not numeric.
        """
        variable = self.variables[name]
        dtype = numpy.dtype(_DTYPES.get(variable.dtype, "V1"))
        n_bytes = math.prod(variable.shape) * dtype.itemsize
        if dtype.kind == "V" or variable.size != n_bytes:
            raise ValueError(
                f"{self._index_file}: {name!r} can't be read: it is in parts, or {variable.size} "
                f"bytes of TensorFlow's type {variable.dtype} in the shape {variable.shape}"
            )
        data_file = f"{self.prefix}.data-{variable.file_number:05d}-of-{self._n_files:05d}"
        if not os.path.isfile(data_file):
            raise FileNotFoundError(f"{data_file}: this file of the checkpoint is missing")
        if variable.offset + n_bytes > os.path.getsize(data_file):
            raise ValueError(f"{data_file}: is cut off in the middle of {name!r}")
        return variable, dtype, data_file

    def _read_index(self) -> None:
        is_file = os.path.isfile(self._index_file)
        table = b""
        if is_file and os.path.getsize(self._index_file) <= _MAX_INDEX_BYTES:
            table = Path(self._index_file).read_bytes()
        if len(table) < _FOOTER_SIZE or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
            raise ValueError(
                f"{self._index_file}: not the index of a TensorFlow checkpoint, or one cut off"
            )
        try:
            # The offsets and sizes of a block for metadata and of the index of the others.
            numbers = _varints(table[-_FOOTER_SIZE:], 0, 4)
            for _ in self._block(table, numbers[:2]):
                pass  # empty, and checked like all others
            end, last = 0, None
            for _, value in self._block(table, numbers[2:4]):
                offset, size, _ = _varints(value, 0, 2)
                # Each byte is read once, and each variable has one entry.
                if offset < end:
                    raise IndexError("blocks overlap")
                end = offset + size
                for key, entry in self._block(table, (offset, size)):
                    if last is not None and key <= last:
                        raise IndexError("names are not sorted")
                    last = key
                    self._parse_entry(key, entry)
            if not self._n_files:
                raise IndexError("it has no header")
        except (IndexError, TypeError, struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{self._index_file}: is damaged ({error})") from error

    def _block(self, table: bytes, handle: Tuple[int, ...]) -> Iterator[Tuple[bytes, bytes]]:
        """
        Yield the keys and values of the block at (offset, size).
        """
        from google_crc32c import value as crc32c

        offset, size = handle
        end = offset + size
        if size < 4 or end + _TRAILER_SIZE > len(table) - _FOOTER_SIZE:
            raise IndexError("a block lies outside of the file")
        compression, checksum = struct.unpack("<BI", table[end : end + _TRAILER_SIZE])
        if _mask(crc32c(table[offset : end + 1])) != checksum:
            raise IndexError("the checksum of a block is wrong")
        if compression:
            raise IndexError("compressed blocks, which TensorFlow's Saver does not write")
        block = table[offset:end]
        # The block ends with places where reading can start, and their number.
        last = size - 4 * (struct.unpack("<I", block[-4:])[0] + 1)
        key, place = b"", 0
        while place < last:
            n_shared, n_new, n_value, place = _varints(block, place, 3)
            if n_shared > len(key) or place + n_new + n_value > last:
                raise IndexError("an entry is cut off")
            if n_shared + n_new > _MAX_NAME_BYTES:
                raise IndexError(f"a name of more than {_MAX_NAME_BYTES} bytes")
            key = key[:n_shared] + block[place : place + n_new]
            place += n_new
            yield key, block[place : place + n_value]
            place += n_value

    def _parse_entry(self, key: bytes, entry: bytes) -> None:
        if key:
            self.variables[key.decode("utf-8")] = _parse_variable(entry)
            return
        header = dict(_fields(entry))
        if header.get(2):
            raise IndexError("from a big-endian machine")
        self._n_files = index(header.get(1, 0))


def find_checkpoint(path: Union[str, "os.PathLike[str]"]) -> str:
    """
    Return the prefix of the files of a V2 checkpoint, from this prefix or the folder of the files.

    In a folder, it is the one that the file `checkpoint` names, wherever the folder was before;
    without this file, the only one there is. No other folder is searched.

    # Raises

    `FileNotFoundError` if there is none, `ValueError` if it isn't clear which one is meant.
    """
    path = os.fspath(path)
    if not os.path.isdir(path):
        prefix = path.removesuffix(".index")
        if not os.path.isfile(f"{prefix}.index"):
            raise FileNotFoundError(
                f"{prefix}.index: there is no such TensorFlow checkpoint; one of the old format V1 "
                "has to be saved again by a newer TensorFlow"
            )
        return prefix
    found = find_checkpoint_names(Path(path))
    choice = os.path.join(path, "checkpoint")
    if os.path.isfile(choice):
        with open(choice, "rb") as file:  # a protocol buffer in text form
            match = _LATEST.search(file.read(2**20))
        try:  # Bytes that are not ASCII are escaped one by one, or as they are.
            named = match[1].decode("unicode_escape").encode("latin-1").decode("utf-8")  # type: ignore[index]
        except (TypeError, UnicodeError):
            raise ValueError(
                f'{choice}: has no line `model_checkpoint_path: "..."` in UTF-8'
            ) from None
        prefix = os.path.join(path, os.path.basename(named))
        if not os.path.isfile(f"{prefix}.index"):
            raise FileNotFoundError(
                f"{choice}: names {named!r}, but there is no "
                f"{f'{os.path.basename(prefix)}.index'!r}; of checkpoints there are {found}"
            )
        return prefix
    if not found:
        raise FileNotFoundError(f"{path}: there is no TensorFlow V2 checkpoint (*.index, *.data-*)")
    if len(found) > 1:
        raise ValueError(
            f"{path}: has the checkpoints {found}, and no file `checkpoint` that says which is "
            "meant; give the path of one, without .index"
        )
    return os.path.join(path, found[0])


def _mask(checksum: int) -> int:
    """
    Return the form in which a checksum is stored. (Data may contain checksums themselves.)
    """
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varints(data: bytes, place: int, count: int) -> Tuple[int, ...]:
    """
    Return `count` numbers from `place` on, seven bits a byte from the lowest, and the place after
    them.
    """
    numbers = []
    for _ in range(count):
        number = shift = 0
        while shift == 0 or data[place - 1] >= 0x80:
            if shift > 63:
                raise IndexError("a number of more than 64 bits")
            number |= (data[place] & 0x7F) << shift
            place, shift = place + 1, shift + 7
        numbers.append(number)
    return (*numbers, place)


def _fields(message: bytes) -> Iterator[Tuple[int, Any]]:
    """
    Yield the fields of a protocol buffer: the number of each, and its value, a number or bytes.
    """
    place = 0
    while place < len(message):
        tag, place = _varints(message, place, 1)
        wire_type = tag & 7
        if wire_type == 0:
            number, place = _varints(message, place, 1)
            yield tag >> 3, number
        elif wire_type == 2:
            size, place = _varints(message, place, 1)
            if place + size > len(message):
                raise IndexError("a field is cut off")
            yield tag >> 3, message[place : place + size]
            place += size
        elif wire_type == 5:
            yield tag >> 3, struct.unpack_from("<I", message, place)[0]
            place += 4
        else:
            raise IndexError(f"a field of wire type {wire_type}")


def _parse_variable(entry: bytes) -> Variable:
    fields: Dict[int, Any] = dict(_fields(entry))
    shape: List[int] = []
    for number, dimension in _fields(fields.get(2, b"")):
        if number == 2:
            shape.append(index(dict(_fields(dimension)).get(1, 0)))
    if len(shape) > _MAX_DIMENSIONS or max(shape, default=0) > _MAX_DIMENSION:
        raise IndexError("a shape that no variable has")
    # Field 7 describes the parts of a variable.
    dtype = 0 if 7 in fields else index(fields.get(1, 0))
    return Variable(dtype, tuple(shape), *(index(fields.get(number, 0)) for number in (3, 4, 5, 6)))
