"""
Tensors that `torch.save` wrote, read without unpickling: of the pickle in the file only the few
operations that describe dictionaries of tensors are understood, and none of them calls anything.
"""

import math
import os
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
    NotImplementedError,
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
    Where numbers lie: the type, the name of the file in the archive, and how many.
    """

    dtype: torch.dtype
    key: str
    size: int


class StoredTensor(NamedTuple):
    """
    What a file says of a tensor. Nothing of it is checked against the file yet.
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
        What errors call it.

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
        if (
            any(
                entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size
                for entry in entries
            )
            or sum(entry.file_size for entry in entries) > file_size
        ):
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
        self.tensors: Dict[str, StoredTensor] = self._parse(bytes(self._read(found[0])))

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
            values = _Parser(pickled).run()
        except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
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
        return values

    @property
    def n_numbers(self) -> int:
        """
        How many numbers the file holds. Those that tensors share count once.
        """
        dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in self.tensors.values()}
        return sum(
            self._entries[f"{self._folder}data/{key}"].file_size // _item_size(dtype)
            for key, dtype in dtypes.items()
            if f"{self._folder}data/{key}" in self._entries
        )

    def read(self, name: str) -> torch.Tensor:
        """
        Return a tensor, in the memory layout that it was saved with.

        # Raises

        `ValueError` that names the file and the tensor.
        """
        storage, offset, shape, strides = self.tensors[name]
        entry_name = f"{self._folder}data/{storage.key}"
        entry = self._entries.get(entry_name)
        n_numbers = math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if (
            entry is None
            or entry.file_size != storage.size * _item_size(storage.dtype)
            or n_numbers > storage.size
            or (n_numbers and last >= storage.size)
        ):
            raise ValueError(
                f"{self.source}: the tensor {name!r} of shape {shape} is not wholly in it; get the "
                "file again"
            )
        if not n_numbers:
            return torch.empty(shape, dtype=storage.dtype)
        numbers = torch.frombuffer(self._read(entry_name), dtype=storage.dtype)
        return numbers.as_strided(shape, strides, offset)


def _item_size(dtype: torch.dtype) -> int:
    return torch.empty(0, dtype=dtype).element_size()


class _Refused(ValueError):
    """
    What a pickle has in it that a state dict never has.
    """


class _Parser:
    """
    Reads a pickle of protocol 2 as a description, operation by operation. What is named in it stays
    a name.

    # Parameters

    data : `bytes`
        The pickle.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0
        self._stack: List[Any] = []
        # Where on the stack the items of a tuple or dictionary start.
        self._marks: List[int] = []
        self._memo: Dict[int, Any] = {}

    def run(self) -> Any:
        """
        # Returns

        `Any`
            A `StoredTensor`, a dictionary with strings as keys, a tuple, a string, a number or
            `None`.

        # Raises

        `_Refused` for what isn't allowed; `IndexError`, `KeyError`, `TypeError`, `ValueError` or
        `struct.error` of a damaged pickle.
        """
        while True:
            code = self._take(1)
            if code == b".":
                return self._stack.pop()
            operation = self._OPERATIONS.get(code)
            if operation is None:
                raise _Refused(f"operation {code!r} of pickle")
            operation(self)

    def _take(self, n_bytes: int) -> bytes:
        taken = self._data[self._place : self._place + n_bytes]
        if len(taken) < n_bytes:
            raise IndexError
        self._place += n_bytes
        return taken

    def _number(self, form: str) -> int:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop_items(self) -> List[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _pop_tuple(self, n_items: int) -> None:
        if len(self._stack) < n_items:
            raise IndexError
        items = tuple(self._stack[-n_items:])
        del self._stack[-n_items:]
        self._push(items)

    def _line(self) -> str:
        end = self._data.index(b"\n", self._place)
        return self._take(end + 1 - self._place)[:-1].decode("ascii")

    def _global(self) -> None:
        name = f"{self._line()} {self._line()}"
        if name not in {*_DTYPES, _DICTIONARY, _TENSOR, _PARAMETER}:
            raise _Refused(f"'{shown(name)}'")
        self._push(_Global(name))

    def _string(self) -> None:
        self._push(self._take(self._number("<I")).decode("utf-8", "surrogatepass"))

    def _long(self) -> None:
        self._push(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    def _storage(self) -> None:
        kind, storage_type, key, _, size = self._stack.pop()
        if kind != "storage" or type(storage_type) is not _Global or storage_type not in _DTYPES:
            raise _Refused("a storage that is not of floating-point numbers")
        if type(key) is not str or type(size) is not int:
            raise TypeError
        self._push(_Storage(_DTYPES[storage_type], key, size))

    def _call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not _Global or type(arguments) is not tuple:
            raise TypeError
        if function == _DICTIONARY and not arguments:
            self._push({})
        elif function == _TENSOR:
            self._push(_tensor(*arguments[:4]))
        elif function == _PARAMETER and isinstance(arguments[0], StoredTensor):
            self._push(arguments[0])
        else:
            raise _Refused(f"'{function}' with other arguments than those of a state dict")

    def _set_items(self, items: List[Any]) -> None:
        values = self._stack[-1]
        names = items[::2]
        if type(values) is not dict or any(type(name) is not str for name in names):
            raise TypeError
        values.update(zip(names, items[1::2]))

    def _set_item(self) -> None:
        value, name = self._stack.pop(), self._stack.pop()
        self._set_items([name, value])

    def _set_attributes(self) -> None:
        # Of a state dict, the versions of its modules.
        if type(self._stack.pop()) is not dict or type(self._stack[-1]) is not dict:
            raise TypeError

    _OPERATIONS = {
        b"\x80": lambda self: self._number("<B"),  # the protocol
        b"}": lambda self: self._push({}),
        b")": lambda self: self._push(()),
        b"N": lambda self: self._push(None),
        b"\x88": lambda self: self._push(True),
        b"\x89": lambda self: self._push(False),
        b"J": lambda self: self._push(self._number("<i")),
        b"K": lambda self: self._push(self._number("<B")),
        b"M": lambda self: self._push(self._number("<H")),
        b"\x8a": _long,
        b"X": _string,
        b"c": _global,
        b"(": lambda self: self._marks.append(len(self._stack)),
        b"t": lambda self: self._push(tuple(self._pop_items())),
        b"\x85": lambda self: self._pop_tuple(1),
        b"\x86": lambda self: self._pop_tuple(2),
        b"\x87": lambda self: self._pop_tuple(3),
        b"q": lambda self: self._memo.__setitem__(self._number("<B"), self._stack[-1]),
        b"r": lambda self: self._memo.__setitem__(self._number("<I"), self._stack[-1]),
        b"h": lambda self: self._push(self._memo[self._number("<B")]),
        b"j": lambda self: self._push(self._memo[self._number("<I")]),
        b"Q": _storage,
        b"R": _call,
        b"s": _set_item,
        b"u": lambda self: self._set_items(self._pop_items()),
        b"b": _set_attributes,
    }


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    if type(storage) is not _Storage or type(shape) is not tuple or type(strides) is not tuple:
        raise TypeError
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError
    if any(type(number) is not int or not 0 <= number < 2**62 for number in numbers):
        raise ValueError
    return StoredTensor(storage, offset, shape, strides)
