"""Writes TensorFlow V2 checkpoints, for tests that need one of a given shape."""

import os
import struct
from os import PathLike
from typing import Dict, Iterator, List, Tuple, Union

import google_crc32c
import numpy as np

_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "float16": 19}
_RESTART_INTERVAL = 16
_CHUNK = 2**22


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def mask(checksum: int) -> bytes:
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _number(field: int, number: int) -> bytes:
    """A field of a protocol buffer; those that are 0 are left out."""
    return varint(field << 3) + varint(number) if number else b""


def _message(field: int, message: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(message)) + message


def _block(items: List[Tuple[bytes, bytes]], compression: int) -> bytes:
    body, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % _RESTART_INTERVAL == 0:
            restarts.append(len(body))
        else:
            shared = len(os.path.commonprefix([last, key]))
        body += varint(shared) + varint(len(key) - shared) + varint(len(value))
        body += key[shared:] + value
        last = key
    body += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    body += bytes([compression])
    return body + mask(google_crc32c.value(body))


def write_index(
    path: Union[str, "PathLike[str]"],
    entries: Dict[bytes, bytes],
    block_entries: int = 20,
    compression: int = 0,
) -> None:
    """The table alone; `entries` are the values by their keys."""
    items = sorted(entries.items())
    table, handles = b"", []

    def add(block: bytes) -> bytes:
        nonlocal table
        handle = varint(len(table)) + varint(len(block) - 5)
        table += block
        return handle

    for start in range(0, len(items), block_entries):
        part = items[start : start + block_entries]
        handles.append((part[-1][0] + b"\0", add(_block(part, compression))))
    footer = add(_block([], 0)) + add(_block(handles, 0))
    table += footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    with open(path, "wb") as file:
        file.write(table)


def _chunks(values: np.ndarray) -> Iterator[bytes]:
    if values.ndim == 0:
        yield values.tobytes()
        return
    rows = max(1, _CHUNK // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        yield np.ascontiguousarray(values[start : start + rows]).tobytes()


def write_checkpoint(
    prefix: Union[str, "PathLike[str]"],
    variables: Dict[str, np.ndarray],
    n_shards: int = 1,
    **table: int,
) -> None:
    """
    Variables are dealt to the shards in turn. Large ones may be memory maps: they are written in
    parts.
    """
    header = _number(1, n_shards) + _message(3, _number(1, 1))
    entries = {b"": header}
    files = [open(f"{prefix}.data-{i:05d}-of-{n_shards:05d}", "wb") for i in range(n_shards)]
    try:
        for i, (name, values) in enumerate(sorted(variables.items())):
            shard = i % n_shards
            offset, checksum = files[shard].tell(), 0
            for chunk in _chunks(values):
                checksum = google_crc32c.extend(checksum, chunk)
                files[shard].write(chunk)
            shape = b"".join(_message(2, _number(1, size)) for size in values.shape)
            entries[name.encode()] = (
                _number(1, _DTYPES[values.dtype.name])
                + _message(2, shape)
                + _number(3, shard)
                + _number(4, offset)
                + _number(5, values.nbytes)
                + b"\x35"
                + mask(checksum)
            )
    finally:
        for file in files:
            file.close()
    write_index(f"{prefix}.index", entries, **table)
