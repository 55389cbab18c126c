"""The HDF5 file of ELMo layers that `allennlp elmo` writes: one dataset a sentence."""

import json
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Sequence

import h5py

from allennlp_elmo_plugin.files.json_file import parse_json
from allennlp_elmo_plugin.files.whole import LateErrorFile, whole_file

DTYPES = ("float32", "float16")
COMPRESSIONS = ("gzip", "lzf")

ATTRIBUTE = "allennlp_elmo_plugin"
"""Attribute of the root group: JSON of how the file was made."""

MAX_MAPPING_BYTES = 2**32 - 2**10
"""HDF5 counts the bytes of a string by 32 bits; longer ones can be written, but not read."""

_CHUNK_TOKENS = 4096
_OTHER_KEYS = "so it cannot be a key; use line numbers (no `--use-sentence-keys`)"


class LayersFile:
    """A new HDF5 file of layers; see `open_layers_file`."""

    def __init__(self, file: Any, compression: Optional[str]) -> None:
        self._file = file
        self._compression = compression
        self._link_properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        self._link_properties.set_create_intermediate_group(True)
        self._link_properties.set_char_encoding(h5py.h5t.CSET_UTF8)
        self._plain_properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self._plain_properties.set_obj_track_times(False)

    def add(self, key: str, layers: Any) -> None:
        """Add the layers of one sentence, shape `(layers, tokens, dim)` or `(tokens, dim)`."""
        # h5py's `create_dataset` takes twice the time.
        dataset = h5py.h5d.create(
            self._file.id,
            key.encode("utf-8"),
            h5py.h5t.py_create(layers.dtype),
            h5py.h5s.create_simple(layers.shape),
            self._creation_properties(layers),
            self._link_properties,
        )
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, layers)

    def add_sentence(self, sentence: str, layers: Any, place: str) -> None:
        """Add layers by the sentence itself, for which HDF5's slashes may have no such key."""
        check_key(sentence, place)
        try:
            # Otherwise, empty parts at the ends would count.
            self.add("/".join(filter(None, sentence.split("/"))), layers)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{place}: the sentence {sentence!r} is to HDF5 the same key as one before, or a "
                f"folder of it, {_OTHER_KEYS}"
            ) from error

    def write_mapping(self, mapping: Dict[str, str], names: Sequence[str]) -> None:
        """Write the keys of the sentences as a JSON object, a dataset of shape `(1,)`."""
        text = json.dumps(mapping, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(text) > MAX_MAPPING_BYTES:
            raise ValueError(
                f"sentence_to_index has {len(text):,} bytes, more than HDF5 can read; leave it out "
                "(`--resume --forget-sentences`)"
            )
        dataset = self._file.create_dataset(names[0], (1,), dtype=h5py.special_dtype(vlen=str))
        dataset[0] = text
        for name in names[1:]:
            self._file[name] = dataset

    def write_summary(self, summary: Dict[str, Any]) -> None:
        self._file.attrs.create(ATTRIBUTE, json.dumps(summary))

    def _creation_properties(self, layers: Any) -> Any:
        # There are no chunks of nothing.
        if self._compression is None or not layers.size:
            return self._plain_properties
        properties = self._plain_properties.copy()
        *others, tokens, dim = layers.shape
        properties.set_chunk((*others, min(tokens, _CHUNK_TOKENS), dim))
        properties.set_shuffle()
        if self._compression == "gzip":
            properties.set_deflate(4)
        else:
            properties.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        return properties


@contextmanager
def open_layers_file(path: str, compression: Optional[str] = None) -> Iterator[LayersFile]:
    """Write a `LayersFile` whole or not at all."""
    # HDF5 1.8's format (2008): in older ones, a writer's memory grows with the keys. For
    # compressed datasets 1.10's (2016), which needs no index of 2.6 KB for each.
    libver = ("v108" if compression is None else "v110", "latest")
    with whole_file(path) as staged, LateErrorFile(staged) as raw:
        with h5py.File(raw, "w", libver=libver) as file:
            yield LayersFile(file, compression)


def read_summary(path: str) -> Optional[Dict[str, Any]]:
    """Return how a `LayersFile` was made, or `None` for another file."""
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get(ATTRIBUTE)
        summary = parse_json(text.encode("utf-8"), path) if isinstance(text, str) else None
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def check_key(sentence: str, place: str) -> None:
    """Raise a `ValueError` that names `place` if the sentence can't be a key."""
    is_unicode = sentence.encode("utf-8", "ignore").decode("utf-8") == sentence
    is_root = all(part in ("", ".") for part in sentence.split("/"))
    if is_root or "\0" in sentence or not is_unicode:
        reason = "is blank, the root of HDF5, or has characters that it can't write"
        raise ValueError(f"{place}: the sentence {sentence!r} {reason}, {_OTHER_KEYS}")
