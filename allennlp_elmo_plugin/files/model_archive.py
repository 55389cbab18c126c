"""
Unpack files of AllenNLP's archives that anybody may have written: nothing that an archive names is
imported, constructed or unpickled, and nothing is written except to a temporary folder.
"""

import gzip
import os
import posixpath
import shutil
import struct
import tarfile
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Collection, Iterator

from allennlp_elmo_plugin.files.hdf5_file import MAX_EXPANSION, allowance
from allennlp_elmo_plugin.files.json_file import shown
from allennlp_elmo_plugin.files.whole_file import DISK_FULL

# Limits of the files in an archive, and of the size of a file's long header.
_MAX_MEMBERS = 10_000
_MAX_HEADER_BYTES = 2**20
_CHUNK_BYTES = 2**20

# The errors of `gzip` and `tarfile` for damaged files.
_ERRORS = (OSError, tarfile.TarError, EOFError, zlib.error, struct.error, ValueError, OverflowError)

_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _Refused(ValueError):
    """
    An error that already names the archive.
    """


class _Member(tarfile.TarInfo):
    """
    A file of an archive, whose header is not read if it is too long.
    """

    def _proc_member(self, archive: Any) -> Any:
        if self.type in _LONG_HEADERS and self.size > _MAX_HEADER_BYTES:
            raise ValueError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


class _Decompressed:
    """
    The contents of a gzip file, up to as many bytes as its size allows.
    """

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._source = source
        self._n_left = allowance(os.fstat(file.fileno()).st_size)

    def read(self, n_bytes: int) -> bytes:
        data = self._file.read(n_bytes)
        self.check(len(data))
        self._n_left -= len(data)
        return data

    def check(self, n_bytes: int) -> None:
        """
        Refuse the file if it may not unpack to so many more bytes.
        """
        if n_bytes > self._n_left:
            raise _Refused(
                f"{self._source}: unpacks to more than {MAX_EXPANSION} times its size, which no "
                "trained model does; don't use it"
            )


@contextmanager
def unpacked_files(path: str, source: str, names: Collection[str]) -> Iterator[Path]:
    """
    Unpack some of the files of an archive.

    # Parameters

    path : `str`
        A `model.tar.gz`.
    source : `str`
        Its name in errors.
    names : `Collection[str]`
        The files to unpack, by their paths in the archive. Others are skipped.

    # Returns

    `Iterator[Path]`
        A temporary folder with the files that are in the archive.

    # Raises

    `ValueError` for an archive that is cut off or damaged, that unpacks to more than 100 times its
    size (and 64 MiB), or that AllenNLP didn't write: with files or links outside of its folder,
    devices, or links instead of `names`; `OSError` for a full disk.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with open(path, "rb") as file:
                stream = _Decompressed(file, source)
                opened: Any = stream
                with tarfile.open(fileobj=opened, mode="r|", tarinfo=_Member) as archive:
                    for member in _members(archive, source):
                        stream.check(member.size)
                        _unpack(archive, member, Path(folder), source, names)
                while stream.read(_CHUNK_BYTES):
                    pass  # to the checksum at the end
        except _Refused:
            raise
        except _ERRORS as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                message = f"cannot unpack {source}: {error.strerror}; make room, or set TMPDIR"
                raise OSError(error.errno, message, folder) from error
            raise ValueError(
                f"{source} is not a model.tar.gz, or one cut off ({shown(error, 200)})"
            ) from error
        yield Path(folder)


def _members(archive: tarfile.TarFile, source: str) -> Iterator[tarfile.TarInfo]:
    for _ in range(_MAX_MEMBERS):
        member = archive.next()
        if member is None:
            return
        archive.members.clear()  # type: ignore[attr-defined]  # which keeps all headers
        yield member
    raise _Refused(f"{source}: has more than {_MAX_MEMBERS:,} files; don't use it")


def _unpack(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    source: str,
    names: Collection[str],
) -> None:
    name = posixpath.normpath(member.name)
    problem = None
    if not _is_harmless(member, name):
        problem = "a device, or lies or links outside of the archive"
    elif name in names and (not member.isreg() or member.issparse()):
        problem = "a link or a folder, not a file"
    if problem is not None:
        raise _Refused(
            f"{source}: '{shown(member.name, 200)}' in it is {problem}. AllenNLP wrote no such "
            "archive: don't use it"
        )
    if name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        file: Any = archive.extractfile(member)
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK_BYTES)
        if target.stat().st_size < member.size:
            raise EOFError(f"{member.name!r} is cut off")


def _is_harmless(member: tarfile.TarInfo, name: str) -> bool:
    paths = [name]
    if member.issym():
        paths.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname)))
    elif member.islnk():
        paths.append(posixpath.normpath(member.linkname))
    elif not (member.isreg() or member.isdir()):
        return False
    return not any(posixpath.isabs(path) or path.split("/")[0] == ".." for path in paths)
