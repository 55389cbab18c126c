"""
The HDF5 file of ELMo layers that `allennlp elmo` writes: one dataset a sentence.
"""

import itertools
import json
import posixpath
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

_SENTENCE = "sentence"
_CHUNK_TOKENS = 4096
_GZIP_LEVEL = 4
_OTHER_KEYS = "so it cannot be a key; use line numbers (no `--use-sentence-keys`)"


class LayersFile:
    """
    A new HDF5 file of layers; see `open_layers_file`.
    """

    def __init__(self, file: Any, compression: Optional[str]) -> None:
        self._file = file
        self._compression = compression
        self._link_properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        self._link_properties.set_create_intermediate_group(True)
        self._link_properties.set_char_encoding(h5py.h5t.CSET_UTF8)
        self._plain_properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self._plain_properties.set_obj_track_times(False)

    def add(self, key: str, layers: Any, sentence: Optional[str] = None) -> None:
        """
        Add the layers of one sentence as a dataset.

        # Parameters

        key : `str`
            Name of the dataset, not yet used. Slashes make groups, as everywhere in HDF5.
        layers : `numpy.ndarray`
            Shape `(layers, tokens, dim)` or `(tokens, dim)`.
        sentence : `str`, optional (default = `None`)
            The sentence that the key stands for: an attribute, if it is not the key itself.
        """
        # h5py's `create_dataset` takes twice the time (64 us a key against 32).
        dataset = h5py.h5d.create(
            self._file.id,
            key.encode("utf-8"),
            h5py.h5t.py_create(layers.dtype),
            h5py.h5s.create_simple(layers.shape),
            self._creation_properties(layers),
            self._link_properties,
        )
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, layers)
        if sentence is not None and sentence != key:
            h5py.Dataset(dataset).attrs[_SENTENCE] = sentence

    def add_sentence(self, sentence: str, layers: Any, place: str, is_carried: bool) -> None:
        """
        Add the layers of a sentence whose key is the sentence itself, unless they are there.

        # Parameters

        sentence : `str`
        layers : `numpy.ndarray`
        place : `str`
            The file and line of the sentence, for errors.
        is_carried : `bool`
            Whether the same sentence has other layers in another place.

        # Raises

        ValueError
        """
        key = sentence_key(sentence, place)
        other = self._sentence_at(key)
        if other == sentence and not is_carried:
            return
        reason = None
        if other == sentence:
            reason = "occurs twice, with layers that differ since states are carried"
        elif other is not None:
            reason = f"is to HDF5 the same key as {other!r} before"
        elif self._file.get(key, getclass=True) is h5py.Group:
            reason = "is to HDF5 a folder: a sentence before begins with it and '/'"
        else:
            for folder in itertools.accumulate(key.split("/")[:-1], posixpath.join):
                if self._sentence_at(folder) is not None:
                    reason = f"is to HDF5 in the folder {folder!r}, but that is a sentence before"
        if reason is not None:
            raise ValueError(f"{place}: the sentence {sentence!r} {reason}, {_OTHER_KEYS}")
        self.add(key, layers, sentence)

    def _sentence_at(self, key: str) -> Optional[str]:
        item = self._file.get(key)
        return item.attrs.get(_SENTENCE, key) if isinstance(item, h5py.Dataset) else None

    def write_mapping(self, mapping: Dict[str, str], names: Sequence[str]) -> None:
        """Write the keys of the sentences as a JSON object, a dataset of shape `(1,)`."""
        text = json.dumps(mapping, ensure_ascii=False).encode("utf-8", "surrogatepass")
        check_mapping(len(text))
        dataset = self._file.create_dataset(names[0], (1,), dtype=h5py.special_dtype(vlen=str))
        dataset[0] = text
        for name in names[1:]:
            self._file[name] = dataset

    def write_summary(self, summary: Dict[str, Any]) -> None:
        """Write how the file was made to the attribute of the root group."""
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
            properties.set_deflate(_GZIP_LEVEL)
        else:
            properties.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        return properties


@contextmanager
def open_layers_file(path: str, compression: Optional[str] = None) -> Iterator[LayersFile]:
    """
    Write a `LayersFile` whole or not at all.

    # Parameters

    path : `str`
    compression : `str`, optional (default = `None`)
        `"gzip"`, which every HDF5 library reads, or the faster `"lzf"`, which comes with h5py.
    """
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


def check_mapping(size: int) -> None:
    """Check that a JSON object, or a text, of so many bytes can be a `sentence_to_index`."""
    if size > MAX_MAPPING_BYTES:
        raise ValueError(
            f"sentence_to_index, which has all sentences, can have {MAX_MAPPING_BYTES:,} bytes in "
            f"HDF5, but these have {size:,}; leave it out (`--forget-sentences`)"
        )


def sentence_key(sentence: str, place: str) -> str:
    """
    Return the key of a sentence. To HDF5, keys are paths, in which empty parts and `.` between
    slashes count for nothing. `place` names the sentence in the error if HDF5 has no such key.
    """
    reason = None
    parts = [part for part in sentence.split("/") if part not in ("", ".")]
    if not sentence:
        reason = "is blank"
    elif "\0" in sentence:
        reason = "contains a null character"
    elif any("\ud800" <= character <= "\udfff" for character in sentence):
        reason = "is not Unicode (it has half a surrogate pair)"
    elif not parts:
        reason = f"is {sentence!r}, HDF5's name of the root"
    if reason is not None:
        raise ValueError(f"{place}: the sentence {reason}, {_OTHER_KEYS}")
    return "/".join(parts)
