"""The finished parts of a text that is being embedded: files in the folder `OUTPUT.parts`."""

import io
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from allennlp_elmo_plugin.files.locks import open_locked
from allennlp_elmo_plugin.files.whole import LateErrorFile


class Part(NamedTuple):
    """Sentences, how many vectors each has, their flattened layers, and the carried states."""

    sentences: list[str]
    lengths: list[int]
    layers: torch.Tensor
    states: list[torch.Tensor] | None = None


class PartsFolder:
    """
    The folder of an output's parts, numbered files that appear whole. Nothing is synced: after a
    loss of power, the folder has to be removed.
    """

    def __init__(self, output: str) -> None:
        self._path = Path(f"{output}.parts")

    def lock(self, name: str, wait: bool = False) -> io.FileIO:
        """Make the folder and lock this work in it; see `open_locked`."""
        return open_locked(self._path / f"{name}.lock", wait)

    def start(self, settings: dict[str, Any], anew: bool = False) -> None:
        """Remove all parts, or raise a `ValueError` unless they were made with these settings."""
        if anew:
            for part in filter(str.isdigit, os.listdir(self._path)):
                os.remove(self._path / part)
        if not self.has_parts():
            with self._write("settings.json") as new:
                new.write(json.dumps(settings).encode())
        saved = json.loads((self._path / "settings.json").read_text())
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
        """Return a part if it is there. Its layers are read from the disk when they are used."""
        path = self._path / f"{number:05}"
        try:
            return Part(*torch.load(path, weights_only=True, mmap=True))
        except FileNotFoundError:  # It isn't there yet, or another shard has just joined the parts.
            return None
        except Exception as error:  # torch documents none of those that damaged files cause
            raise ValueError(f"{path}: damaged; remove it and continue (`--resume`)") from error

    def write(self, number: int, part: Part) -> None:
        with self._write(f"{number:05}") as file:
            torch.save(tuple(part), file)

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    @contextmanager
    def _write(self, name: str) -> Iterator[LateErrorFile]:
        # Processes that share the work may write the settings at the same time.
        new = self._path / f"{name}.{os.getpid()}"
        try:
            with LateErrorFile(new) as file:
                yield file
            os.replace(new, self._path / name)
        except OSError as error:
            new.unlink(missing_ok=True)
            message = f"{error.strerror}; the other parts are safe: make room, then `--resume`"
            raise OSError(error.errno, message, str(self._path / name)) from error
