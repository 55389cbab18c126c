"""
Unpack files of archives that anybody may have written, those of AllenNLP (`model.tar.gz`) and zip
archives: nothing that an archive names is imported, constructed or unpickled, and nothing is
written except to a temporary folder. That folder depends on the archive alone, only the `with`
block that made it uses it, and it is removed at the end of that block.

A zip archive is unpacked, too, although h5py could read the weights in it: HDF5 reads a file in any
order, and a compressed member would be decompressed from its start again for each step backwards.
Unpacked, every byte is read once, and compared with its checksum before it is used.
"""

import gzip
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, List, Set

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

# Limits of the files in an archive, and of the size of a file's long header.
_MAX_MEMBERS = 10_000
_MAX_HEADER_BYTES = 2**20
_CHUNK_BYTES = 2**20
_SHOWN_NAMES = 8
"""How many names of files an error quotes."""

# The errors of `gzip`, `tarfile` and `zipfile` for damaged files; the last two for features of zip
# archives that Python lacks.
_ERRORS = (
    *(OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, struct.error),
    *(ValueError, OverflowError, RuntimeError, NotImplementedError),
)

_ZIP_START, _GZIP_START = b"PK", b"\x1f\x8b"
_ENCRYPTED = 0x1  # a flag of a file in a zip archive
# The files of a model of ELMoForManyLangs, which the NLPL repository has, too.
_OTHER_KIND = {"encoder.pkl", "token_embedder.pkl"}

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

    def __init__(self, file: IO[bytes], source: str, update: Callable[[int], Any]) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._compressed = file
        self._n_read = 0
        self._update = update
        self._source = source
        self._n_left = allowance(os.fstat(file.fileno()).st_size)

    def read(self, n_bytes: int) -> bytes:
        data = self._file.read(n_bytes)
        self.check(len(data))
        self._n_left -= len(data)
        n_read = self._compressed.tell()
        self._update(n_read - self._n_read)
        self._n_read = n_read
        return data

    def check(self, n_bytes: int) -> None:
        """
        Refuse the file if it may not unpack to so many more bytes.
        """
        if n_bytes > self._n_left:
            raise _too_large(self._source)


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

    `FileNotFoundError`, or `ValueError` for an archive without a model, and what `unpacked_files`
    raises.
    """
    if os.path.isdir(path):
        _check_kind(os.listdir(path), source)
        yield Path(path)
        return
    if not os.path.isfile(path):
        raise ValueError(f"{source} is not a model.tar.gz: it is a device or a pipe")
    if not is_archive(path):
        raise ValueError(f"{source} is not a model: expected {WHOLE_MODELS}")
    names: Set[str] = set()

    def is_wanted(name: str) -> bool:
        names.add(posixpath.basename(name))
        return is_model_file(name)

    with unpacked_files(path, source, is_wanted) as unpacked:
        _check_kind(names, source)
        folder = _folder_of_the_model(unpacked, source, names)
        with errors_that_name(source, unpacked):
            yield folder


@contextmanager
def errors_that_name(source: str, folder: Path) -> Iterator[None]:
    """
    Replace a temporary folder in the errors of the block by what its files are from.
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(str(error).replace(os.fspath(folder), source)) from error


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


@contextmanager
def unpacked_files(path: str, source: str, is_wanted: Callable[[str], bool]) -> Iterator[Path]:
    """
    Unpack some of the files of an archive.

    # Parameters

    path : `str`
        A `model.tar.gz` or a zip archive.
    source : `str`
        Its name in errors.
    is_wanted : `Callable[[str], bool]`
        Whether to unpack a file, by its path in the archive. Others are skipped.

    # Returns

    `Iterator[Path]`
        A temporary folder with the files that are in the archive.

    # Raises

    `ValueError` for an archive that is cut off or damaged, that unpacks to more than 100 times its
    size (and 64 MiB), or that nobody should have written: with files or links outside of its
    folder, devices, or links instead of files that are wanted; `OSError` for a full disk.
    """
    with tempfile.TemporaryDirectory() as folder:
        kind = "model.tar.gz"
        try:
            with open(path, "rb") as file:
                start = file.read(2)
                file.seek(0)
                if start == _ZIP_START or path.endswith(".zip"):
                    kind = "zip archive"
                    _unpack_zip(file, Path(folder), source, is_wanted)
                else:
                    _unpack_tar(file, Path(folder), source, is_wanted)
        except _Refused:
            raise
        except _ERRORS as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                message = f"cannot unpack {source}: {error.strerror}; make room, or set TMPDIR"
                raise OSError(error.errno, message, folder) from error
            raise ValueError(
                f"{source} is not a {kind}, or one cut off ({shown(error, 200)})"
            ) from error
        yield Path(folder)


def _unpack_tar(
    file: IO[bytes], folder: Path, source: str, is_wanted: Callable[[str], bool]
) -> None:
    with step_bar(
        f"unpacking {os.path.basename(source)}", os.fstat(file.fileno()).st_size
    ) as update:
        stream = _Decompressed(file, source, update)
        opened: Any = stream
        with tarfile.open(fileobj=opened, mode="r|", tarinfo=_Member) as archive:
            for member in _members(archive, source):
                stream.check(member.size)
                _unpack(archive, member, folder, source, is_wanted)
        while stream.read(_CHUNK_BYTES):
            pass  # to the checksum at the end


def _unpack_zip(
    file: IO[bytes], folder: Path, source: str, is_wanted: Callable[[str], bool]
) -> None:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_number(len(members), source)
        wanted: List[zipfile.ZipInfo] = []
        for member in members:
            # Some programs for Windows separate folders by backslashes.
            member.filename = member.filename.replace("\\", "/")
            name = posixpath.normpath(member.filename)
            if not _is_inside(name):
                raise _outside(source, member.filename)
            if not member.is_dir() and is_wanted(name):
                wanted.append(member)
        n_bytes = sum(member.file_size for member in wanted)
        if n_bytes > allowance(os.fstat(file.fileno()).st_size):
            raise _too_large(source)
        with step_bar(f"unpacking {os.path.basename(source)}", n_bytes) as update:
            for member in wanted:
                name = posixpath.normpath(member.filename)
                kind = stat.S_IFMT(member.external_attr >> 16)
                if kind not in (0, stat.S_IFREG):
                    raise _no_file(source, name)
                if member.flag_bits & _ENCRYPTED:
                    raise _Refused(
                        f"{source}: '{shown(name, 200)}' in it is encrypted; unpack it with its "
                        "password, and give the folder"
                    )
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise _Refused(
                        f"{source}: '{shown(name, 200)}' in it is compressed in a way that is not "
                        "read; pack it with the method deflate, or without compression"
                    )
                if (folder / name).exists():
                    raise _Refused(f"{source}: has '{shown(name, 200)}' twice; remove one")
                _write(folder / name, archive.open(member), member.file_size)
                update(member.file_size)


def _members(archive: tarfile.TarFile, source: str) -> Iterator[tarfile.TarInfo]:
    n_members = 0
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # which keeps all headers
        n_members += 1
        _check_number(n_members, source)
        yield member


def _unpack(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    source: str,
    is_wanted: Callable[[str], bool],
) -> None:
    name = posixpath.normpath(member.name)
    if not _is_harmless(member, name):
        raise _outside(source, member.name)
    if not is_wanted(name) or (member.isdir() and "." not in posixpath.basename(name)):
        return  # A folder may be called `checkpoint`.
    if not member.isreg() or member.issparse():
        raise _no_file(source, member.name)
    file: Any = archive.extractfile(member)
    _write(folder / name, file, member.size)


def _write(target: Path, file: Any, size: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as copy, file:
        shutil.copyfileobj(file, copy, _CHUNK_BYTES)
    if target.stat().st_size < size:
        raise EOFError(f"{target.name!r} is cut off")


def _is_harmless(member: tarfile.TarInfo, name: str) -> bool:
    paths = [name]
    if member.issym():
        paths.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname)))
    elif member.islnk():
        paths.append(posixpath.normpath(member.linkname))
    elif not (member.isreg() or member.isdir()):
        return False
    return all(map(_is_inside, paths))


def _is_inside(path: str) -> bool:
    return not posixpath.isabs(path) and path.split("/")[0] != ".."


def _check_number(n_members: int, source: str) -> None:
    if n_members > _MAX_MEMBERS:
        raise _Refused(f"{source}: has more than {_MAX_MEMBERS:,} files; don't use it")


def _outside(source: str, name: str) -> _Refused:
    return _Refused(
        f"{source}: '{shown(name, 200)}' in it is a device, or lies or links outside of the "
        "archive. Nobody packs a model like this: don't use it"
    )


def _no_file(source: str, name: str) -> _Refused:
    return _Refused(
        f"{source}: '{shown(name, 200)}' in it is a link or a folder, not a file. Nobody packs a "
        "model like this: don't use it"
    )


def _too_large(source: str) -> _Refused:
    return _Refused(
        f"{source}: unpacks to more than {MAX_EXPANSION} times its size, which no trained model "
        "does; don't use it"
    )
