"""
Unpack the archives of models, those of AllenNLP (`model.tar.gz`) and zip archives, that anybody may
have written: regular files with the names of a model's files are copied to a temporary folder, and
nothing else. (HDF5 reads a file in any order, so weights can't be read from an archive directly.)
"""

import gzip
import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, Set, Tuple

from allennlp_elmo_plugin.files.hdf5_file import MAX_EXPANSION, allowance
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.model_file_names import (
    ARCHIVE_SUFFIXES,
    ARCHIVED_WEIGHT_FILE,
    CONFIG_FILE,
    NLPL_WEIGHT_FILE,
    OPTIONS_FILE,
    WEIGHT_FILE,
    WHOLE_MODELS,
    is_model_file,
    model_folders,
)
from allennlp_elmo_plugin.files.whole import DISK_FULL
from allennlp_elmo_plugin.progress import step_bar

_CHUNK_BYTES = 2**20
_SHOWN_NAMES = 8
"""How many names of files an error quotes."""
_TOO_LARGE = f"it unpacks to more than {MAX_EXPANSION} times its size, which no trained model does"

_ZIP_START, _GZIP_START = b"PK", b"\x1f\x8b"
# The files of a model of ELMoForManyLangs, which the NLPL repository has, too.
_OTHER_KIND = {"encoder.pkl", "token_embedder.pkl"}


def is_archive(path: str) -> bool:
    """
    Return whether a file is an archive, by its first bytes or, if it is damaged, by its name.
    """
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        start = file.read(2)
    return start in (_ZIP_START, _GZIP_START) or path.endswith(ARCHIVE_SUFFIXES)


@contextmanager
def model_folder(path: str, source: str) -> Iterator[Path]:
    """
    Yield the folder with the files of a model: `path`, or if this is an archive a temporary folder,
    which has its files until the end of the block. They may be in any one folder of the archive.

    # Parameters

    path : `str`
        A folder or an archive.
    source : `str`
        Its name in errors, also in those that are raised in the block.

    # Raises

    `FileNotFoundError`, or `ValueError` for an archive without a model, or one that is cut off,
    damaged, or unpacks to more than 100 times its size (and 64 MiB); `OSError` for a full disk.
    """
    if os.path.isdir(path):
        _check_kind(os.listdir(path), source)
        yield Path(path)
        return
    if not is_archive(path):
        raise ValueError(f"{source} is not a model: expected {WHOLE_MODELS}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            names = _unpack(path, source, Path(folder))
        except Exception as error:  # The three libraries raise errors of many kinds.
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                message = f"cannot unpack {source}: {error.strerror}; make room, or set TMPDIR"
                raise OSError(error.errno, message, folder) from error
            raise ValueError(f"{source}: can't be unpacked ({shown(error, 200)})") from error
        _check_kind(names, source)
        found = _folder_of_the_model(Path(folder), source, names)
        try:
            yield found
        except (ValueError, FileNotFoundError) as error:
            kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
            raise kind(str(error).replace(folder, source)) from error


def _folder_of_the_model(unpacked: Path, source: str, names: Set[str]) -> Path:
    found = model_folders(unpacked)
    if found[:1] == [unpacked] or len(found) == 1:
        return found[0]
    if found:
        folders = sorted(folder.relative_to(unpacked).as_posix() for folder in found)
        raise ValueError(
            f"{source}: has several models, in the folders {', '.join(map(shown, folders))}; "
            "unpack it, and give the folder of one"
        )
    listed = [shown(name) for name in sorted(names) if not name.startswith(".")]
    if len(listed) > _SHOWN_NAMES:
        listed[_SHOWN_NAMES:] = ["..."]
    raise ValueError(
        f"{source} is not the archive of a model: it needs {CONFIG_FILE} and "
        f"{ARCHIVED_WEIGHT_FILE}, or {OPTIONS_FILE} and {WEIGHT_FILE} or {NLPL_WEIGHT_FILE}; it "
        f"has {', '.join(listed) or 'no files'}"
    )


def _check_kind(names: Iterable[str], source: str) -> None:
    """
    Refuse the files of a model of ELMoForManyLangs, whose config.json is not that of AllenNLP.
    """
    if _OTHER_KIND.issubset(names):
        raise ValueError(
            f"{source}: is a model of ELMoForManyLangs, which has another architecture and can't "
            f"be read; choose one that has an {OPTIONS_FILE}"
        )


Member = Tuple[str, Callable[[], Any]]
"""The path of a file in an archive, and what opens it."""


def _unpack(path: str, source: str, folder: Path) -> Set[str]:
    """
    Copy the files of a model, and return the names of all files without their folders.
    """
    names = set()
    size = os.path.getsize(path)
    with (
        open(path, "rb") as file,
        step_bar(f"unpacking {os.path.basename(source)}", size) as update,
    ):
        is_zip = file.read(2) == _ZIP_START or path.endswith(".zip")
        file.seek(0)
        members = _zip_members if is_zip else _tar_members
        for name, open_member in members(file, allowance(size), update):
            name = posixpath.normpath(name.replace("\\", "/"))  # of some programs for Windows
            names.add(posixpath.basename(name))
            if is_model_file(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with open_member() as member, open(folder / name, "wb") as copy:
                    shutil.copyfileobj(member, copy, _CHUNK_BYTES)
    return names


def _zip_members(file: IO[bytes], max_bytes: int, update: Callable[[int], Any]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        # No more is read of a file than its header says.
        if sum(member.file_size for member in members) > max_bytes:
            raise ValueError(_TOO_LARGE)
        for member in members:
            yield member.filename, partial(archive.open, member)
            update(member.compress_size)
        n_read = sum(member.compress_size for member in members)
        update(os.fstat(file.fileno()).st_size - n_read)  # headers


def _tar_members(file: IO[bytes], max_bytes: int, update: Callable[[int], Any]) -> Iterator[Member]:
    stream: Any = _Decompressed(file, max_bytes, update)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.size > max_bytes:
                raise ValueError(_TOO_LARGE)
            # A sparse file may be larger than what is read of the stream.
            if member.isreg() and not member.issparse():
                yield member.name, partial(archive.extractfile, member)
    while stream.read(_CHUNK_BYTES):
        pass  # to the checksum at the end


class _Decompressed:
    """
    The contents of a gzip file, up to `max_bytes`: headers may tell any size.
    """

    def __init__(self, file: IO[bytes], max_bytes: int, update: Callable[[int], Any]) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._compressed = file
        self._n_read = 0
        self._n_left = max_bytes
        self._update = update

    def read(self, n_bytes: int) -> bytes:
        data = self._file.read(n_bytes)
        self._n_left -= len(data)
        if self._n_left < 0:
            raise ValueError(_TOO_LARGE)
        n_read = self._compressed.tell()
        self._update(n_read - self._n_read)
        self._n_read = n_read
        return data
