"""Writes TensorFlow V2 checkpoints, for tests that need one of a given shape."""

import os
import struct
from pathlib import Path

import google_crc32c

_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "float16": 19}


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def mask(checksum):
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _number(field, number):
    """A field of a protocol buffer; those that are 0 are left out."""
    return varint(field << 3) + varint(number) if number else b""


def _message(field, message):
    return varint(field << 3 | 2) + varint(len(message)) + message


def _block(items, compression):
    body, last = b"", b""
    for key, value in items:
        shared = len(os.path.commonprefix([last, key]))
        body += varint(shared) + varint(len(key) - shared) + varint(len(value))
        body += key[shared:] + value
        last = key
    body += struct.pack("<2I", 0, 1)  # Reading can only start at the start.
    body += bytes([compression])
    return body + mask(google_crc32c.value(body))


def write_index(path, entries, block_entries=20, compression=0):
    """The table alone; `entries` are the values by their keys."""
    items = sorted(entries.items())
    table, handles = b"", []

    def add(block):
        nonlocal table
        handle = varint(len(table)) + varint(len(block) - 5)
        table += block
        return handle

    for start in range(0, len(items), block_entries):
        part = items[start : start + block_entries]
        handles.append((part[-1][0] + b"\0", add(_block(part, compression))))
    footer = add(_block([], 0)) + add(_block(handles, 0))
    table += footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    Path(path).write_bytes(table)


def entry(shape, size, offset=0, dtype=1, shard=0):
    """The value of a variable in the table, but for its checksum."""
    dimensions = b"".join(_message(2, _number(1, dim)) for dim in shape)
    numbers = _number(3, shard) + _number(4, offset) + _number(5, size)
    return _number(1, dtype) + _message(2, dimensions) + numbers


def write_checkpoint(prefix, variables, n_shards=1, **table):
    """Variables are dealt to the shards in turn."""
    entries = {b"": _number(1, n_shards) + _message(3, _number(1, 1))}
    shards = [bytearray() for _ in range(n_shards)]
    for i, (name, values) in enumerate(sorted(variables.items())):
        data, number = values.tobytes(), i % n_shards
        dtype, offset = _DTYPES[values.dtype.name], len(shards[number])
        checksum = b"\x35" + mask(google_crc32c.value(data))
        entries[name.encode()] = entry(values.shape, len(data), offset, dtype, number) + checksum
        shards[number] += data
    for number, shard in enumerate(shards):
        Path(f"{prefix}.data-{number:05d}-of-{n_shards:05d}").write_bytes(shard)
    write_index(f"{prefix}.index", entries, **table)
