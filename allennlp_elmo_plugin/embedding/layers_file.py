"""The HDF5 file of ELMo layers that `allennlp elmo` writes."""

import json
import os
from contextlib import suppress
from typing import Any, Dict, Optional, Sequence

import h5py
import numpy
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.embedding.journaled_file import JournaledFile, journal_path, read_note
from allennlp_elmo_plugin.files.json_file import parse_json
from allennlp_elmo_plugin.files.locks import open_locked
from allennlp_elmo_plugin.files.whole import DISK_FULL, is_special, remove

DTYPES = ("float32", "float16")
COMPRESSIONS = ("gzip", "lzf")

ATTRIBUTE = "allennlp_elmo_plugin"
"""Attribute of the root group: JSON of how the file was made."""

MAX_MAPPING_BYTES = 2**32 - 2**10
"""HDF5 counts the bytes of a string by 32 bits; longer ones can be written, but not read."""

_SENTENCE = "sentence"
_CHUNK_TOKENS = 4096
_GZIP_LEVEL = 4

_REPLACE = "ask for it to be replaced (`--force`, or `overwrite=True` in Python)"


class LayersFile:
    """
    An HDF5 file with one dataset a sentence, written from start to end.

        with LayersFile("layers.hdf5") as file:
            file.add("0", layers)

    Everything is written to `layers.hdf5.partial`, which its writer locks. This file gets its final
    name when the `with` block ends without an error. Otherwise it stays only if it has a
    `checkpoint`, from which `resume` continues.

    # Parameters

    path : `str`
        The name of the file.
    overwrite : `bool`, optional (default = `False`)
        Replace an existing or partial file.
    resume : `bool`, optional (default = `False`)
        Continue a partial file, if there is one.
    settings : `Dict[str, Any]`, optional (default = `None`)
        JSON that describes how the file is made, kept in the file. To resume, it must be the same.
    dtype : `str`, optional (default = `"float32"`)
        `"float32"` or `"float16"`.
    compression : `str`, optional (default = `None`)
        `"gzip"`, which every HDF5 library reads, or the faster `"lzf"`, which comes with h5py.

    # Raises

    `ConfigurationError`
        As `check_output`; or the partial file is in use or has other settings.
    """

    def __init__(
        self,
        path: str,
        overwrite: bool = False,
        resume: bool = False,
        settings: Optional[Dict[str, Any]] = None,
        dtype: str = "float32",
        compression: Optional[str] = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigurationError(f"dtype is {dtype!r}; it must be one of {list(DTYPES)}")
        if compression is not None and compression not in COMPRESSIONS:
            raise ConfigurationError(
                f"compression is {compression!r}; it must be one of {list(COMPRESSIONS)}, or none"
            )
        self._path = os.path.expanduser(os.fspath(path))
        self._overwrite = overwrite
        check_output(self._path, overwrite, resume)
        self._partial_path = partial_file(self._path)
        self._settings = settings or {}
        self._dtype = dtype
        self._compression = compression
        self._file: Any = None
        self._raw: Any = None
        self._mapping: Any = None
        self._resume = resume and bool((read_note(self._partial_path) or {}).get("progress"))
        self.progress: Dict[str, Any] = {}
        """The argument of the last `checkpoint`; empty at the start."""

    def __enter__(self) -> "LayersFile":
        try:
            self._raw = JournaledFile(self._partial_path, recover=self._resume)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"{self._partial_path} is being written by another process; wait for it, or choose "
                "another output"
            ) from error
        try:
            _check_new(self._path, self._overwrite)  # again: another process may have finished it
            if self._resume:
                self.progress = self._raw.note["progress"]
                _check_same(self._partial_path, self._raw.note["settings"], self._settings)
            else:
                self._commit({})  # before anything is in the file that could look like progress
            # HDF5 1.8's format (2008): in older ones, a writer's memory grows with the keys. For
            # compressed datasets 1.10's (2016), which needs no index of 2.6 KB for each.
            libver = ("v108" if self._compression is None else "v110", "latest")
            self._link_properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
            self._link_properties.set_create_intermediate_group(True)
            self._link_properties.set_char_encoding(h5py.h5t.CSET_UTF8)
            self._plain_properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            self._plain_properties.set_obj_track_times(False)
            self._file = h5py.File(self._raw, "r+" if self._resume else "w", libver=libver)
            self._mapping = open(_mapping(self._partial_path), "r+b" if self._resume else "w+b")
            self._mapping.truncate(self.progress.get("mapping_bytes", 0))
            self._mapping.seek(0, os.SEEK_END)
        except BaseException:
            if self._file is not None:
                self._file.close()
            if not self._resume:
                _remove(self._partial_path)  # while it is locked, so that nobody else's goes
            self._raw.close()
            raise
        return self

    def __exit__(self, _: Any, error: Optional[BaseException], traceback: Any) -> None:
        try:
            for file in (self._file, self._mapping):
                try:
                    file.close()
                except Exception:
                    # Closing tries to write once more what could not be written.
                    if error is None and self._raw.error is None:
                        raise
            failure = self._raw.error
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                failure = error
            if failure is not None and (error is None or isinstance(error, Exception)):
                raise self._write_error(failure) from failure
            if error is None:
                self._raw.rename(self._path)
            else:
                self._leave()
        except BaseException:
            self._leave()
            raise
        finally:
            self._raw.close()
        if error is None:
            _remove_leftovers(self._partial_path)

    def _leave(self) -> None:
        if not self.progress:
            _remove(self._partial_path)

    def _write_error(self, error: OSError) -> OSError:
        kept = "nothing is kept"
        if self.progress:
            kept = (
                f"what was written up to the last checkpoint is safe in {self._partial_path}: make "
                "room and continue with --resume"
            )
        return OSError(error.errno, f"{error.strerror}; {kept}", self._partial_path)

    def _check(self) -> None:
        """Raise the error of a write that failed: `JournaledFile` hides it from HDF5."""
        if self._raw.error is not None:
            raise self._raw.error

    def sentence_at(self, key: str) -> Optional[str]:
        """Return the sentence of the dataset that has the key of a sentence, or `None`."""
        item = self._file.get(key)
        return item.attrs.get(_SENTENCE, key) if isinstance(item, h5py.Dataset) else None

    def is_group(self, key: str) -> bool:
        """Return whether longer keys begin with this one and a slash."""
        return self._file.get(key, getclass=True) is h5py.Group

    def add(
        self, key: str, layers: "numpy.ndarray[Any, Any]", sentence: Optional[str] = None
    ) -> None:
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
        # h5py's `create_dataset` needs twice the time (64 us a key against 32).
        with numpy.errstate(over="ignore"):
            layers = numpy.ascontiguousarray(layers, dtype=self._dtype)
        if self._dtype == "float16" and not numpy.isfinite(layers).all():
            raise ConfigurationError(
                f"the layers with the key {key!r} have numbers beyond those of float16 (65,504); "
                "write float32 (`--dtype`)"
            )
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
        self._check()

    def _creation_properties(self, layers: "numpy.ndarray[Any, Any]") -> Any:
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

    def add_mapping(self, sentence: str, key: str) -> None:
        """Add a pair to `sentence_to_index`. A second file holds the pairs until the end."""
        separator = ", " if self._mapping.tell() else ""
        pair = f"{separator}{json.dumps(sentence)}: {json.dumps(key)}"
        if self._mapping.tell() + len(pair) > MAX_MAPPING_BYTES - len("{}"):
            raise ConfigurationError(
                f"sentence_to_index can have {MAX_MAPPING_BYTES:,} bytes in HDF5, too few for the "
                f"sentence with the key {key}; leave it out (`--forget-sentences`)"
            )
        self._mapping.write(pair.encode("ascii"))

    def write_mapping(self, names: Sequence[str]) -> None:
        """Write all pairs as one JSON object, a dataset of shape `(1,)` with these names."""
        self._mapping.seek(0)
        text = b"{%s}" % self._mapping.read()
        dataset = self._file.create_dataset(names[0], (1,), dtype=h5py.special_dtype(vlen=str))
        dataset[0] = text
        for name in names[1:]:
            self._file[name] = dataset
        self._check()

    def copy_from(self, source: Any, key: str) -> None:
        """Copy a dataset of another open HDF5 file as it is."""
        name = key.encode("utf-8")
        h5py.h5o.copy(source.id, name, self._file.id, name, None, self._link_properties)
        self._check()

    def checkpoint(self, progress: Dict[str, Any]) -> None:
        """Make what is written safe, with JSON that describes the progress, for `resume`."""
        self._mapping.flush()
        self._file.flush()
        self._commit({**progress, "mapping_bytes": self._mapping.tell()})

    def _commit(self, progress: Dict[str, Any]) -> None:
        self._raw.commit({"settings": self._settings, "progress": progress})
        self.progress = progress

    def finish(self, summary: Dict[str, Any]) -> None:
        """Write the settings and `summary` to the attribute of the root group."""
        self._file.attrs.create(ATTRIBUTE, json.dumps({**self._settings, **summary}))


def check_output(path: str, overwrite: bool = False, resume: bool = False) -> None:
    """
    Check what can be checked before the work: that the file can be written.

    # Raises

    `ConfigurationError`
        The file or a partial one exists and may not be replaced; the path is a folder, a device or
        a pipe; or its folder is missing or read-only.
    """
    path = os.path.expanduser(path)
    if not os.path.basename(path):
        raise ConfigurationError(f"cannot write {path!r}: it names no file, give a file name")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ConfigurationError(
            f"cannot write {path}: there is no folder {folder}; create it first"
        )
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(f"cannot write {path}: nothing can be written to {folder}")
    if os.path.isdir(path):
        raise ConfigurationError(f"cannot write {path}: it is a folder, give a file name")
    if is_special(path):
        raise ConfigurationError(f"cannot write {path}: it is a device or a pipe, give a file name")
    partial = partial_file(path)
    _check_new(path, overwrite)
    if not (overwrite or resume) and _has_progress(partial):
        raise ConfigurationError(
            f"{partial} is there, of a run that did not finish or is still running; continue it "
            f"(`--resume`, or `resume=True` in Python), or {_REPLACE}"
        )


def _check_new(path: str, overwrite: bool) -> None:
    if os.path.lexists(path) and not overwrite:
        raise ConfigurationError(
            f"{path} exists already; remove it, choose another name, or {_REPLACE}"
        )


def check_settings(path: str, settings: Dict[str, Any]) -> None:
    """Check that a `LayersFile`, if it is complete or can be resumed, has these settings."""
    summary = complete_summary(path)
    if summary is not None:
        _check_same(path, {key: summary.get(key) for key in settings}, settings)
    elif has_checkpoint(path):
        _check_same(partial_file(path), read_note(partial_file(path))["settings"], settings)


def _check_same(path: str, found: Dict[str, Any], settings: Dict[str, Any]) -> None:
    differences = [
        f"{key} was {found.get(key)!r} and is {settings.get(key)!r}"
        for key in sorted({*found, *settings})
        if found.get(key) != settings.get(key)
    ]
    if differences:
        raise ConfigurationError(
            f"{path} is of a run with other settings: {'; '.join(differences)}. Give the same "
            f"ones, or {_REPLACE}"
        )


def has_checkpoint(path: str) -> bool:
    """Return whether a run that writes, or wrote, this file can be resumed."""
    with suppress(OSError, ValueError):
        note = read_note(partial_file(os.path.expanduser(path)))
        return note is not None and bool(note["progress"])
    return False


def _has_progress(partial: str) -> bool:
    """Return whether something can get lost: a run to resume, or somebody else's file."""
    try:
        note = read_note(partial)
    except ValueError:  # of another version
        return True
    if note is None:
        return os.path.exists(partial) and os.path.getsize(partial) > 0
    return bool(note["progress"])


def complete_summary(path: str) -> Optional[Dict[str, Any]]:
    """
    Return the summary of a `LayersFile` that is complete, or `None`, also if a run is replacing it.
    Remove the files that a process was killed while removing.
    """
    if not os.path.exists(path) or os.path.exists(partial_file(path)):
        return None
    if any(map(os.path.lexists, _files_of_a_run(partial_file(path)))):
        _remove_leftovers(partial_file(path))
    return read_summary(path)


def read_summary(path: str) -> Optional[Dict[str, Any]]:
    """Return the settings and the summary of a `LayersFile`, or `None` for another file."""
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get(ATTRIBUTE)
        summary = parse_json(text.encode("utf-8"), path) if isinstance(text, str) else None
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def partial_file(path: str) -> str:
    """Return the name of a `LayersFile` before it is complete."""
    return f"{path}.partial"


def _mapping(partial: str) -> str:
    return f"{partial}.sentences"


def _files_of_a_run(partial: str) -> Sequence[str]:
    # The journal first: without it there is nothing to resume.
    return journal_path(partial), _mapping(partial), partial


def _remove(partial: str) -> None:
    """Remove the files of a run that did not finish; the caller has the lock."""
    for path in _files_of_a_run(partial):
        remove(path)


def _remove_leftovers(partial: str) -> None:
    """Remove what is left of a run whose file has its final name, unless another has begun."""
    with suppress(BlockingIOError), open_locked(partial):
        _remove(partial)
