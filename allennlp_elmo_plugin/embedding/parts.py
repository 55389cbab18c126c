"""
The parts of a text that is being embedded, a file each in the folder `OUTPUT.parts`: what a run
that was stopped, and the processes that share the work, have finished.
"""

import io
import itertools
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy
import torch

from allennlp_elmo_plugin.files.locks import open_locked

Array = Any  # numpy.ndarray, whose type parameters differ between the supported versions


class Part(NamedTuple):
    """
    The layers of sentences that follow each other in a text.

    # Parameters

    sentences : `List[str]`
    lengths : `numpy.ndarray`
        Words of each sentence, shape `(n_sentences,)`.
    layers : `numpy.ndarray`
        The layers of one sentence after the other, flattened.
    states : `List[torch.Tensor]`, optional (default = `None`)
        What the language model carries to the next part, if anything.
    """

    sentences: List[str]
    lengths: Array
    layers: Array
    states: Optional[List[torch.Tensor]] = None


class PartsFolder:
    """
    A folder of parts. Each appears whole, by its number, as numpy arrays one after the
    other, the layers as plain numbers at the end.
    Nothing is synced: after a loss of power the folder has to be removed.

    # Parameters

    path : `str`
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @contextmanager
    def lock(self, name: str, wait: bool = False) -> Iterator[None]:
        """
        Make the folder, and refuse, or wait for, another process that does the same work in it.

        # Raises

        ValueError
        """
        lock = None
        while lock is None:
            self._path.mkdir(exist_ok=True)
            try:
                lock = open_locked(self._path / f"{name}.lock", wait=wait)
            except FileNotFoundError:
                continue  # Another process has just joined the parts and removed the folder.
            except BlockingIOError:
                raise ValueError(
                    f"{self._path} is being written by another process; wait for it, or choose "
                    "another output"
                ) from None
        with lock:
            yield

    def start(self, settings: Dict[str, Any], anew: bool = False) -> None:
        """
        Remove all parts, or check that they were made with these settings.

        # Raises

        ValueError
        """
        file = self._path / "settings.json"
        if anew:
            for part in self._path.iterdir():
                if part.name.isdigit():
                    part.unlink()
        if not self.has_parts():
            self._write(file.name, [], numpy.frombuffer(json.dumps(settings).encode(), "uint8"))
        found = json.loads(file.read_text())
        differences = [
            f"{key} was {found.get(key)!r} and is {settings.get(key)!r}"
            for key in sorted({*found, *settings})
            if found.get(key) != settings.get(key)
        ]
        if differences:
            raise ValueError(
                f"{self._path} is of a run with other settings: {'; '.join(differences)}. Give the "
                "same ones, or remove it"
            )

    def has_parts(self) -> bool:
        """Return whether there is a part."""
        return self._path.is_dir() and any(name.isdigit() for name in os.listdir(self._path))

    def has(self, number: int) -> bool:
        """Return whether a part is complete."""
        return (self._path / f"{number:05}").exists()

    def __iter__(self) -> Iterator[Part]:
        return map(self.read, itertools.takewhile(self.has, itertools.count()))

    def read(self, number: int, with_layers: bool = True) -> Part:
        """Return a part, with its layers or without."""
        with open(self._path / f"{number:05}", "rb") as file:
            text, states, lengths, none = (numpy.load(file) for _ in range(4))
            layers = none
            if with_layers and lengths.any():
                layers = numpy.memmap(file, none.dtype, "r", file.tell())
        sentences = text.tobytes().decode("utf-8", "surrogatepass").split("\n")
        carried = torch.load(io.BytesIO(states.tobytes()), weights_only=True)
        return Part(sentences, lengths, layers, carried)

    def write(self, number: int, part: Part) -> None:
        """Write a part whole."""
        states = io.BytesIO()
        torch.save(part.states, states)
        text = "\n".join(part.sentences).encode("utf-8", "surrogatepass")
        arrays = numpy.frombuffer(text, "uint8"), numpy.frombuffer(states.getvalue(), "uint8")
        self._write(f"{number:05}", [*arrays, part.lengths, part.layers[:0]], part.layers)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _write(self, name: str, arrays: Sequence[Array], content: Array) -> None:
        # Processes that share the work may write the settings at the same time.
        new = self._path / f"{name}.{os.getpid()}"
        try:
            with open(new, "wb") as file:
                for array in arrays:
                    numpy.save(file, array)
                content.tofile(file)
            os.replace(new, self._path / name)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f"{error.strerror}; the parts before are safe: make room and continue (`--resume`)",
                str(self._path / name),
            ) from error
