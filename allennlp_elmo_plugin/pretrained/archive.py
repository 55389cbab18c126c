"""
Unpack untrusted archives of models, `.tar.gz` and zip. Only regular files with the names of a
model's files are copied to a temporary folder.
"""

import gzip
import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from allennlp_elmo_plugin.files.hdf5_file import MAX_EXPANSION, allowance
from allennlp_elmo_plugin.files.json_file import escaped
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.progress import step_bar

_CHUNK_BYTES = 2**20
_MAX_MEMBERS = 10_000
_TOO_MANY = f"it has more than {_MAX_MEMBERS:,} files and folders"
_TOO_LARGE = f"it unpacks to more than {MAX_EXPANSION} times its size, which no trained model does"
_ZIP_START, _GZIP_START = b"PK", b"\x1f\x8b"


def is_archive(path: str) -> bool:
    """Return whether a file is an archive, by its first bytes or, if damaged, by its name."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(2) in (_ZIP_START, _GZIP_START) or path.endswith(names.ARCHIVE_SUFFIXES)


@contextmanager
def model_folder(path: str, source: str) -> Iterator[Path]:
    """
    Yield the folder with the files of a model: `path`, or if this is an archive, a temporary folder
    with its files. Errors, also those raised in the block, call it `source`.
    """
    if os.path.isdir(path):
        yield Path(path)
        return
    if not is_archive(path):
        raise ValueError(f"{source} is not a model: expected {names.WHOLE_MODELS}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            _unpack(path, source, Path(folder))
        except Exception as error:  # The three libraries raise errors of many kinds.
            raise ValueError(f"{source}: can't be unpacked ({escaped(error, 200)})") from error
        try:
            yield _folder_of_the_model(Path(folder))
        except (ValueError, FileNotFoundError) as error:
            kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
            raise kind(str(error).replace(folder, source)) from error


def _folder_of_the_model(unpacked: Path) -> Path:
    folders = [
        path
        for path in (unpacked, *unpacked.rglob("*"))
        if (path / names.CONFIG_FILE).is_file()
        or names.has_options(path)
        or names.is_hub_module(path)
    ]
    if len(folders) != 1 and folders[:1] != [unpacked]:
        text = f"has {len(folders)} models: expected the files of {names.WHOLE_MODELS}"
        raise ValueError(f"{unpacked} {text}")
    return folders[0]


def _unpack(path: str, source: str, folder: Path) -> None:
    size = os.path.getsize(path)
    with (
        open(path, "rb") as file,
        step_bar(f"unpacking {os.path.basename(source)}", size) as update,
    ):
        is_zip = file.read(2) == _ZIP_START or path.endswith(".zip")
        file.seek(0)
        position = 0
        for name, member in (_zip_members if is_zip else _tar_members)(file, allowance(size)):
            name = posixpath.normpath(name.replace("\\", "/"))  # Some programs for Windows write \.
            if names.is_model_file(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                with open(folder / name, "wb") as copy:
                    shutil.copyfileobj(member, copy, _CHUNK_BYTES)
            update(file.tell() - position)
            position = file.tell()


def _zip_members(file: IO[bytes], max_bytes: int) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        if len(archive.infolist()) > _MAX_MEMBERS:
            raise ValueError(_TOO_MANY)
        members = [member for member in archive.infolist() if not member.is_dir()]
        # No more is read of a file than its header says.
        if sum(member.file_size for member in members) > max_bytes:
            raise ValueError(_TOO_LARGE)
        for member in members:
            yield member.filename, archive.open(member)


def _tar_members(file: IO[bytes], max_bytes: int) -> Iterator[tuple[str, Any]]:
    stream: Any = _LimitedGzip(fileobj=file)
    stream.max_bytes = max_bytes
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, member in enumerate(archive):
            if number == _MAX_MEMBERS:
                raise ValueError(_TOO_MANY)
            # A sparse file may be larger than what is read of the stream.
            if member.isreg() and not member.issparse():
                yield member.name, archive.extractfile(member)
    while stream.read(_CHUNK_BYTES):
        pass  # to the checksum at the end


class _LimitedGzip(gzip.GzipFile):
    """A gzip file of at most `max_bytes`, whatever sizes the headers in it tell."""

    max_bytes = 0

    def read(self, size: Any = -1) -> bytes:
        data = super().read(size)
        if self.tell() > self.max_bytes:
            raise ValueError(_TOO_LARGE)
        return data
