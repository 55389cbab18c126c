"""
Read tensors that `torch.save` wrote, without unpickling: of the pickle in the file, only the few
operations that describe dictionaries of tensors are understood, and none of them calls anything.
"""

import math
import os
import pickletools
import re
import struct
import zipfile
import zlib
from typing import Any, BinaryIO, Dict, List, NamedTuple, Tuple, Union

import torch

from allennlp_elmo_plugin.files.json_file import shown

# A description of some dozens of tensors takes a few KB.
_MAX_PICKLE_BYTES = 2**20
_MAX_DIMENSIONS = 32
_CHUNK_BYTES = 2**24

_DTYPES = {
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
}
# The functions that may be named, none of which is called.
_DICTIONARY = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_PARAMETER = "torch._utils _rebuild_parameter"

# What `zipfile` raises of files that are no archives, or damaged.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
)


class _Global(str):
    """
    The module and the name of a function or class, which is not imported.
    """


class _Storage(NamedTuple):
    """
    Stored numbers: their type, the name of their file in the archive, and how many there are.
    """

    dtype: torch.dtype
    key: str
    size: int


class StoredTensor(NamedTuple):
    """
    A tensor as its file describes it.
    """

    storage: _Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


class TensorFile:
    """
    A file of `torch.save` that holds a dictionary of tensors, such as a state dict.

    ```python
    with TensorFile("weights.th") as file:
        file.tensors["softmax.bias"].shape
        values = file.read("softmax.bias")
    ```

    # Parameters

    file : `str`, `os.PathLike` or `BinaryIO`
        Written by torch 1.6 or later; a path, or open for bytes.
    source : `str`, optional (default = the path)
        The name of the file in errors.

    # Raises

    `ValueError` that names the file and what is wrong with it: cut off, damaged, or with anything
    in it but tensors of floating-point numbers by their names.
    """

    def __init__(self, file: Union[str, "os.PathLike[str]", BinaryIO], source: str = "") -> None:
        if isinstance(file, (str, os.PathLike)):
            self.source = source or os.fspath(file)
            if not os.path.isfile(file):
                raise ValueError(f"{self.source}: not a file of weights")
            self._file: BinaryIO = open(file, "rb")
        else:
            self.source, self._file = source, file
        try:
            self._open(self._file.seek(0, os.SEEK_END))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def _open(self, file_size: int) -> None:
        try:
            self._archive = zipfile.ZipFile(self._file)
        except _ZIP_ERRORS as error:
            raise ValueError(
                f"{self.source}: not a file of weights that torch 1.6 or later saved, or one cut "
                f"off ({shown(error, 200)})"
            ) from None
        entries = self._archive.infolist()
        self._entries = {entry.filename: entry for entry in entries}
        # torch stores without compression, each number once: no more can be read than there is.
        is_compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if is_compressed or sum(entry.file_size for entry in entries) > file_size:
            raise ValueError(f"{self.source}: compressed, which torch.save never does")
        found = [name for name in self._entries if re.fullmatch(r"[^/]+/data\.pkl", name)]
        if len(found) != 1:
            raise ValueError(f"{self.source}: not a file of weights (it has no data.pkl)")
        self._folder = found[0][: -len("data.pkl")]
        if self._entries[found[0]].file_size > _MAX_PICKLE_BYTES:
            raise ValueError(f"{self.source}: not a file of weights (data.pkl is too large)")
        order = f"{self._folder}byteorder"
        if order in self._entries and self._read(order) != b"little":
            raise ValueError(f"{self.source}: was written on a big-endian machine")
        self.tensors = self._parse(bytes(self._read(found[0])))

    def _read(self, name: str) -> bytearray:
        size = self._entries[name].file_size
        data = bytearray(size)
        place = 0
        try:
            with self._archive.open(self._entries[name]) as file:
                # To the end, where the checksum is compared.
                while chunk := file.read(_CHUNK_BYTES):
                    data[place : place + len(chunk)] = chunk
                    place += len(chunk)
        except _ZIP_ERRORS as error:
            raise ValueError(
                f"{self.source}: '{shown(name)}' in it is damaged ({shown(error, 200)})"
            ) from None
        if place != size:
            raise ValueError(f"{self.source}: '{shown(name)}' in it is cut off")
        return data

    def _parse(self, pickled: bytes) -> Dict[str, StoredTensor]:
        try:
            values = _description(pickled)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            # A pickle that ends too early, or does what no state dict does.
            reason = error if type(error) is _Refused else "its description is damaged"
            raise ValueError(
                f"{self.source}: has something else in it than a dictionary of tensors ({reason}), "
                "and is not read, as that could run code; use weights that torch.save wrote from a "
                "state dict"
            ) from None
        if not isinstance(values, dict):
            raise ValueError(f"{self.source}: is not a dictionary of tensors")
        for name, value in values.items():
            if not isinstance(value, StoredTensor):
                raise ValueError(
                    f"{self.source}: '{shown(name)}' in it is not a tensor; use weights that "
                    "torch.save wrote from a state dict"
                )
            self._check(name, value)
        return values

    def _check(self, name: str, tensor: StoredTensor) -> None:
        storage, offset, shape, strides = tensor
        entry = self._entries.get(f"{self._folder}data/{storage.key}")
        n_numbers = math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if (
            entry is None
            or entry.file_size != storage.size * torch.empty(0, dtype=storage.dtype).element_size()
            or n_numbers > storage.size
            or (n_numbers and last >= storage.size)
        ):
            raise ValueError(
                f"{self.source}: the tensor '{shown(name, 200)}' of shape {shape} is not wholly in "
                "it; get the file again"
            )

    @property
    def n_numbers(self) -> int:
        """
        How many numbers the tensors have. Those that tensors share count once.
        """
        return sum({each.storage.key: each.storage.size for each in self.tensors.values()}.values())

    def read(self, name: str) -> torch.Tensor:
        """
        Return a tensor, in the memory layout that it was saved with.

        # Raises

        `ValueError` if its numbers are damaged.
        """
        storage, offset, shape, strides = self.tensors[name]
        if not math.prod(shape):
            return torch.empty(shape, dtype=storage.dtype)
        numbers = self._read(f"{self._folder}data/{storage.key}")
        return torch.frombuffer(numbers, dtype=storage.dtype).as_strided(shape, strides, offset)


class _Refused(ValueError):
    """
    The error for what a state dict never has in its pickle.
    """


def _description(pickled: bytes) -> Any:
    """
    Interpret a pickle of protocol 2 as a description. What is named in it stays a name.

    # Returns

    `Any`
        A `StoredTensor`, a dictionary with strings as keys, a tuple, a string, a number or `None`.

    # Raises

    `_Refused` for what isn't allowed; `IndexError`, `KeyError`, `TypeError` or `ValueError` for a
    damaged pickle.
    """
    stack: List[Any] = []
    # Where on the stack the items of a tuple or dictionary start.
    marks: List[int] = []
    memo: Dict[int, Any] = {}
    argument: Any

    def pop(n_items: int) -> List[Any]:
        if n_items > len(stack):
            raise IndexError
        items = stack[len(stack) - n_items :]
        del stack[len(stack) - n_items :]
        return items

    for operation, argument, _ in pickletools.genops(pickled):
        name = operation.name
        if name in ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"):
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "GLOBAL":
            if argument not in {*_DTYPES, _DICTIONARY, _TENSOR, _PARAMETER}:
                raise _Refused(f"'{shown(argument)}'")
            stack.append(_Global(argument))
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(pop(len(stack) - marks.pop())))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(pop(int(name[-1]))))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "BINPERSID":
            stack.append(_storage(*stack.pop()))
        elif name == "REDUCE":
            stack.append(_call(*pop(2)))
        elif name == "SETITEM":
            _set_items(stack[-3], pop(2))
        elif name == "SETITEMS":
            items = pop(len(stack) - marks.pop())
            _set_items(stack[-1], items)
        elif name == "BUILD":  # of a state dict, the versions of its modules
            if type(stack.pop()) is not dict or type(stack[-1]) is not dict:
                raise TypeError
        elif name not in ("PROTO", "STOP"):
            raise _Refused(f"operation {name} of pickle")
    return stack.pop()


_CONSTANTS: Dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _storage(kind: Any, storage_type: Any, key: Any, _: Any, size: Any) -> _Storage:
    if kind != "storage" or type(storage_type) is not _Global or storage_type not in _DTYPES:
        raise _Refused("a storage that is not of floating-point numbers")
    if type(key) is not str or type(size) is not int:
        raise TypeError
    return _Storage(_DTYPES[storage_type], key, size)


def _call(function: Any, arguments: Any) -> Any:
    if type(function) is not _Global or type(arguments) is not tuple:
        raise TypeError
    if function == _DICTIONARY and not arguments:
        return {}
    if function == _TENSOR:
        return _tensor(*arguments[:4])
    if function == _PARAMETER and isinstance(arguments[0], StoredTensor):
        return arguments[0]
    raise _Refused(f"'{function}' with other arguments than those of a state dict")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    if type(storage) is not _Storage or type(shape) is not tuple or type(strides) is not tuple:
        raise TypeError
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError
    if any(type(number) is not int or not 0 <= number < 2**62 for number in numbers):
        raise ValueError
    return StoredTensor(storage, offset, shape, strides)


def _set_items(values: Any, items: List[Any]) -> None:
    names = items[::2]
    if type(values) is not dict or any(type(name) is not str for name in names):
        raise TypeError
    values.update(zip(names, items[1::2]))
