"""The HDF5 file of ELMo layers that the command `elmo` writes: one dataset a sentence."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from allennlp_elmo_plugin.files.atomic import LateErrorFile, atomic_file

DTYPES = ("float32", "float16")
COMPRESSIONS = ("gzip", "lzf")

ATTRIBUTE = "allennlp_elmo_plugin"
"""Attribute of the root group: JSON of how the file was made."""

MAX_MAPPING_BYTES = 2**32 - 2**10
"""HDF5 stores the length of a string in 32 bits: longer ones can be written, but not read."""


class LayersFile:
    """A new HDF5 file of layers; see `open_layers_file`."""

    def __init__(self, file: h5py.File, compression: str | None) -> None:
        self._file = file
        self._compression = compression
        self._link_properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        self._link_properties.set_create_intermediate_group(True)
        self._link_properties.set_char_encoding(h5py.h5t.CSET_UTF8)
        self._properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self._properties.set_obj_track_times(False)

    def add(self, key: str, layers: np.ndarray) -> None:
        """Add the layers of one sentence, shape `(layers, tokens, dim)` or `(tokens, dim)`."""
        if self._compression is not None and layers.size:
            filters = {"chunks": layers.shape, "shuffle": True, "compression": self._compression}
            self._file.create_dataset(key, data=layers, **filters)
            return
        # h5py's `create_dataset` would take twice as long.
        dataset = h5py.h5d.create(
            self._file.id,
            key.encode(),
            h5py.h5t.py_create(layers.dtype),
            h5py.h5s.create_simple(layers.shape),
            self._properties,
            self._link_properties,
        )
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, layers)

    def add_rows(self, rows: np.ndarray) -> None:
        """Append a vector a sentence to the dataset `vectors`."""
        if "vectors" not in self._file:
            filters = {"compression": self._compression, "shuffle": self._compression is not None}
            maxshape = (None, *rows.shape[1:])
            self._file.create_dataset("vectors", data=rows, maxshape=maxshape, **filters)
            return
        vectors = self._file["vectors"]
        vectors.resize(len(vectors) + len(rows), axis=0)
        vectors[-len(rows) :] = rows

    def add_sentence(self, sentence: str, layers: np.ndarray, place: str) -> None:
        """Add layers with the sentence as their key; `place` is for errors."""
        # HDF5 ignores empty parts and dots when it reads, but not when it writes.
        key = "/".join(part for part in sentence.split("/") if part not in ("", "."))
        try:
            if not key or "\0" in key:
                raise ValueError
            self.add(key, layers)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{place}: HDF5 can't store the sentence {sentence!r} as a key, or has it already, "
                "perhaps as a folder; use line numbers (no `--use-sentence-keys`)"
            ) from error

    def write_mapping(self, mapping: dict[str, str], names: Sequence[str]) -> None:
        """Write the keys of the sentences as a JSON object, a dataset of shape `(1,)`."""
        text = json.dumps(mapping, ensure_ascii=False).encode()
        if len(text) > MAX_MAPPING_BYTES:
            raise ValueError(
                f"sentence_to_index has {len(text):,} bytes, more than HDF5 can read; leave it out "
                "(`--resume --forget-sentences`)"
            )
        dataset = self._file.create_dataset(names[0], (1,), dtype=h5py.special_dtype(vlen=str))
        dataset[0] = text
        for name in names[1:]:
            self._file[name] = dataset

    def write_summary(self, summary: dict[str, Any]) -> None:
        self._file.attrs.create(ATTRIBUTE, json.dumps(summary))


@contextmanager
def open_layers_file(
    path: str, compression: str | None = None, staging: Path | None = None
) -> Iterator[LayersFile]:
    """Write a `LayersFile` atomically; see `atomic_file`."""
    # HDF5 1.8's format (2008): in older ones, a writer's memory grows with the keys. Compressed
    # datasets need 1.10's (2016), in which they have no index of 2.6 KB each.
    libver = ("v108" if compression is None else "v110", "latest")
    with atomic_file(path, staging=staging) as staged, LateErrorFile(staged) as raw:
        with h5py.File(raw, "w", libver=libver) as file:
            yield LayersFile(file, compression)


def read_summary(path: str) -> dict[str, Any]:
    """Return how a `LayersFile` was made. For another file, or none, the summary is empty."""
    try:
        with h5py.File(path, "r") as file:
            return dict(json.loads(file.attrs[ATTRIBUTE]))
    except (KeyError, OSError, TypeError, ValueError):
        return {}
