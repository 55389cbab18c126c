"""
A file that survives the death of its process in the middle of a write, with a journal beside it.
"""

import io
import json
import os
import struct
import zlib
from typing import Any, Optional, Set

from allennlp_elmo_plugin.files.locks import open_locked
from allennlp_elmo_plugin.files.whole import remove, sync, sync_folder

_MAGIC = b"allennlp_elmo_plugin journal 1\n"
# Size of the file, length and checksum of the note.
_HEADER = struct.Struct("<QQI")
# Place and length of the bytes that follow, and the checksum of these three.
_RECORD = struct.Struct("<QQI")
_PAGE = 4096


class JournaledFile(io.RawIOBase):
    """
    A file that can always be restored to its content at the last `commit`, even if its process was
    killed between any two bytes. It is made for HDF5, which writes data at the end of a file, but
    its index in place, so that a killed process leaves a broken file.

        file = JournaledFile("layers.hdf5.partial")
        with h5py.File(file, "w") as hdf5:
            hdf5["0"] = 1
            hdf5.flush()
            file.commit({"lines": 1})

        file = JournaledFile("layers.hdf5.partial", recover=True)   # later
        file.note                                                   # {"lines": 1}

    The journal, a second file, holds the size at the commit and the old content of every page that
    has been overwritten since, saved before the first write to the page (as SQLite's rollback
    journal does). To recover, these pages are written back, and the file is cut to that size. A
    commit replaces the journal by a new one. Nothing is synced: a loss of power is not covered.

    A write that fails (a full disk) does not raise an error here, inside the HDF5 library, but
    keeps it as `error`, and nothing is written after it. The owner checks `error` and stops.

    # Parameters

    path : `str`
        The file; the journal's name is this and `.journal`.
    recover : `bool`, optional (default = `False`)
        Restore the last commit instead of starting an empty file.

    # Raises

    `BlockingIOError`
        Another process has the file open.
    `FileNotFoundError`
        There is nothing to recover: no file, or no commit.
    """

    def __init__(self, path: str, recover: bool = False) -> None:
        super().__init__()
        self.path = path
        self.journal_path = journal_path(path)
        self.note: Any = None
        self.error: Optional[OSError] = None
        self._file: Any = None
        self._journal: Any = None
        self._size = 0
        self._saved: Set[int] = set()
        self._file = open_locked(path, create=not recover)
        try:
            if recover:
                self._recover()
            else:
                remove(self.journal_path)
                self._file.truncate(0)
        except BaseException:
            self._file.close()
            raise

    def _recover(self) -> None:
        with open(self.journal_path, "rb") as journal:
            self._size, self.note = _read_header(journal, self.journal_path)
            while True:
                header = journal.read(_RECORD.size)
                if len(header) < _RECORD.size:
                    break
                place, length, checksum = _RECORD.unpack(header)
                content = journal.read(length)
                if len(content) < length or _checksum(place, content) != checksum:
                    break  # Killed while writing this; the page itself was not touched then.
                self._file.seek(place)
                _write_all(self._file, content)
        os.ftruncate(self._file.fileno(), self._size)
        self.commit(self.note)

    def commit(self, note: Any) -> None:
        """
        Make the content of now, and `note` (JSON), what `recover` restores.

        # Raises

        `OSError`
            The journal cannot be written, or an earlier write failed. The last commit still holds.
        """
        if self.error is not None:
            raise self.error
        size = os.fstat(self._file.fileno()).st_size
        text = json.dumps(note).encode("ascii")
        temporary = f"{self.journal_path}.new"
        journal = open(temporary, "wb", buffering=0)
        try:
            _write_all(journal, _MAGIC + _HEADER.pack(size, len(text), zlib.crc32(text)) + text)
            os.replace(temporary, self.journal_path)
        except BaseException as error:
            journal.close()
            remove(temporary)
            if isinstance(error, OSError):
                error.filename = error.filename or self.journal_path
            raise
        if self._journal is not None:
            self._journal.close()
        self._journal, self._size, self._saved, self.note = journal, size, set(), note

    def rename(self, path: str) -> None:
        """Sync the file and rename it, after the last commit: it has no journal any more."""
        sync(self.path)
        os.replace(self.path, path)
        sync_folder(os.path.dirname(os.path.abspath(path)))

    def _save(self, start: int, end: int) -> None:
        """Write the old content of pages to the journal, before they change."""
        if self._journal is None:
            return
        end = min(end, self._size)
        for page in range(start // _PAGE, -(-end // _PAGE)):
            if page in self._saved:
                continue
            place = page * _PAGE
            self._file.seek(place)
            content = _read_all(self._file, min(_PAGE, self._size - place))
            record = _RECORD.pack(place, len(content), _checksum(place, content))
            _write_all(self._journal, record + content)
            self._saved.add(page)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.error is None:
            place = self._file.tell()
            try:
                self._save(place, place + len(view))
                self._file.seek(place)
                _write_all(self._file, view)
            except OSError as error:
                error.filename = error.filename or self.path
                self.error = error
        return len(view)

    def truncate(self, size: Optional[int] = None) -> int:
        if size is None:
            size = self._file.tell()
        if self.error is None:
            place = self._file.tell()
            try:
                self._save(size, self._size)
                os.ftruncate(self._file.fileno(), size)
                self._file.seek(place)
            except OSError as error:
                error.filename = error.filename or self.path
                self.error = error
        return size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        content = _read_all(self._file, len(view))
        view[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            for file in (self._file, self._journal):
                if file is not None:  # Python closes an object whose `__init__` has failed, too.
                    file.close()
        super().close()


def journal_path(path: str) -> str:
    """The journal of a `JournaledFile`."""
    return f"{path}.journal"


def read_note(path: str) -> Any:
    """
    The note of the last commit of a `JournaledFile`; `None` if there is none.
    """
    try:
        with open(path, "rb"), open(journal_path(path), "rb") as journal:
            return _read_header(journal, journal.name)[1]
    except FileNotFoundError:
        return None


def _read_header(journal: Any, name: str) -> Any:
    magic = journal.read(len(_MAGIC))
    header = journal.read(_HEADER.size)
    if magic != _MAGIC or len(header) < _HEADER.size:
        raise ValueError(f"{name} is no journal of this version")
    size, length, checksum = _HEADER.unpack(header)
    text = journal.read(length)
    if len(text) < length or zlib.crc32(text) != checksum:
        raise ValueError(f"{name} is damaged")
    return size, json.loads(text)


def _checksum(place: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<QQ", place, len(content))))


def _read_all(file: Any, size: int) -> bytes:
    parts = []
    while size > 0:
        part = file.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_all(file: Any, content: Any) -> None:
    view = memoryview(content)
    while len(view):
        view = view[file.write(view) :]
