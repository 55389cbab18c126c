"""The finished parts of a text that is being embedded: files in the folder `OUTPUT.parts`."""

import io
import itertools
import json
import math
import os
import shutil
import struct
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from allennlp_elmo_plugin.files.atomic import LateErrorFile, replace
from allennlp_elmo_plugin.files.locks import locked

# The end of a part: where its layers end, and a checksum of what follows them
_END = struct.Struct("<QI")

Batch = tuple[Sequence[int], np.ndarray, Sequence[int]]
"""Sentences of a part by their indices, their rows, `(n_rows, dim)`, and how many each one has."""


class Part(NamedTuple):
    """Sentences, the rows of each, in memory until the next is read, and the carried states."""

    sentences: list[str]
    rows: Iterator[np.ndarray]
    states: list[torch.Tensor] | None


class PartsFolder:
    """
    The folder of an output's parts, numbered files that appear whole: the rows of layers in the
    order in which they were embedded, and what they are. Checksums find bytes that have changed.
    Nothing is synced: after a loss of power, the folder has to be removed.
    """

    def __init__(self, output: str, shard: int = 0) -> None:
        self._path = Path(f"{output}.parts")
        self._shard = shard
        self.staging = self._path / "joined"

    def lock(self, name: str, wait: bool = False) -> AbstractContextManager[None]:
        """Make the folder and lock this work in it; see `locked`."""
        return locked(self._path / f"{name}.lock", wait)

    def start(self, settings: dict[str, Any], anew: bool = False) -> None:
        """Remove all parts, or raise a `ValueError` unless they were made with these settings."""
        if anew:
            for part in filter(str.isdigit, os.listdir(self._path)):
                os.remove(self._path / part)
        if not self.has_parts():
            with self._write("settings.json") as new:
                new.write(json.dumps(settings).encode())
        try:
            saved = dict(json.loads((self._path / "settings.json").read_text()))
        except (TypeError, ValueError) as error:
            advice = "damaged; start again (`--force` without `--resume`)"
            raise ValueError(f"{self._path / 'settings.json'}: {advice}") from error
        for key in sorted({*saved, *settings}):
            if saved.get(key) != settings.get(key):
                raise ValueError(
                    f"{self._path} is of a run with other settings: {key} was {saved.get(key)!r} "
                    f"and is {settings.get(key)!r}. Give the same ones, or remove it"
                )

    def has_parts(self) -> bool:
        return self._path.is_dir() and any(name.isdigit() for name in os.listdir(self._path))

    def has(self, number: int) -> bool:
        return (self._path / f"{number:05}").exists()

    def __iter__(self) -> Iterator[Part]:
        parts = map(self.read, itertools.count())
        return itertools.takewhile(bool, parts)  # type: ignore[arg-type]

    def read(self, number: int) -> Part | None:
        """Return a part if it is there. Its rows are read from the disk when they are used."""
        path = self._path / f"{number:05}"
        try:
            with open(path, "rb") as file:
                size = file.seek(-_END.size, os.SEEK_END)
                n_bytes, checksum = _END.unpack(file.read())
                file.seek(n_bytes)
                content = file.read(size - n_bytes)
            if zlib.crc32(content) != checksum:
                raise ValueError("another checksum")
            text, states = torch.load(io.BytesIO(content), weights_only=True)
            sentences, dtype, dim, order, n_rows, checksums = json.loads(text.numpy().tobytes())
        except FileNotFoundError:  # It isn't there yet, or another shard has just joined the parts.
            return None
        except Exception as error:  # torch documents none of those that damaged files cause
            raise _damaged(path) from error
        starts = itertools.accumulate(n_rows, initial=0)
        places = [place for _, place in sorted(zip(order, zip(starts, n_rows, checksums)))]
        memory = np.empty((max(n_rows), dim), dtype)
        return Part(sentences, _read_rows(path, memory, places), states)

    def write(
        self, number: int, sentences: list[str]
    ) -> Generator[None, Batch | list[torch.Tensor] | None, None]:
        """Write the batches that are sent, and at the end the carried states or `None`."""
        order: list[int] = []
        lengths: list[int] = []
        checksums: list[int] = []
        with self._write(f"{number:05}") as file:
            while isinstance(batch := (yield), tuple):
                indices, rows, n_rows = batch
                order += indices
                lengths += n_rows
                sums = _sums(rows)
                ends = itertools.accumulate(n_rows, initial=0)
                checksums += [zlib.crc32(sums[i:j]) for i, j in itertools.pairwise(ends)]
                if len(rows):
                    file.write(rows)
            n_bytes, content = file.tell(), io.BytesIO()
            kind = rows.dtype.str, rows.shape[1]
            # torch would take long to read a list.
            text = json.dumps((sentences, *kind, order, lengths, checksums)).encode()
            torch.save((torch.frombuffer(bytearray(text), dtype=torch.uint8), batch), content)
            file.write(content.getbuffer())
            file.write(_END.pack(n_bytes, zlib.crc32(content.getbuffer())))

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    @contextmanager
    def _write(self, name: str) -> Iterator[LateErrorFile]:
        # Shards may write the settings at the same time. What a killed one left is overwritten.
        new = self._path / f"{name}.shard-{self._shard}"
        try:
            with LateErrorFile(new) as file:
                yield file
            replace(new, self._path / name)
        except OSError as error:
            new.unlink(missing_ok=True)
            message = f"{error.strerror}; the other parts are safe: make room, then `--resume`"
            if not self._path.exists():
                message = "the folder was removed during the run; start again"
            raise OSError(error.errno, message, str(self._path / name)) from error


def _read_rows(
    path: Path, memory: np.ndarray, places: Iterable[tuple[int, int, int]]
) -> Iterator[np.ndarray]:
    """Yield rows of a file by their start, number and checksum."""
    # Copying from a file that is mapped to memory would take twice as long.
    with open(path, "rb") as file:
        for start, n_rows, checksum in places:
            rows = memory[:n_rows]
            file.seek(start * memory.shape[1] * memory.itemsize)
            file.readinto(rows.data)
            if zlib.crc32(_sums(rows)) != checksum:
                raise _damaged(path)
            yield rows


def _sums(rows: np.ndarray) -> memoryview:
    """Return the sum of each row's bytes, as integers of 8 bytes if possible, `(n_rows,)`."""
    kind = f"u{math.gcd(8, rows.shape[1] * rows.itemsize)}"
    return rows.view(kind).sum(1, dtype="u8").data


def _damaged(path: Path) -> ValueError:
    return ValueError(f"{path}: damaged; remove it and continue (`--resume`)")
