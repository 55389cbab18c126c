import gzip
import io
import os
import tarfile
import time

import pytest

from allennlp_elmo_plugin.files import model_archive
from allennlp_elmo_plugin.files.model_archive import unpacked_files
from tests.support.testing import fork, limit_file_size

NAMES = ("config.json", "weights.th", "vocabulary/lm_tokens.txt")
FILES = {
    "config.json": b"{}",
    "weights.th": os.urandom(5000),
    "vocabulary/lm_tokens.txt": b"<S>\n",
    "notes.txt": b"not unpacked",
}


def member(name, kind=tarfile.REGTYPE, link="", size=0):
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


def pack(*members, files=FILES, form=tarfile.GNU_FORMAT):
    """A tar of `files`, and before them of `members`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for made in members:
            archive.addfile(made, io.BytesIO(bytes(made.size)))
        for name, data in files.items():
            archive.addfile(member(name, size=len(data)), io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def read(tmp_path):
    def read_archive(data, compressed=True):
        path = tmp_path / "model.tar.gz"
        path.write_bytes(gzip.compress(data) if compressed else data)
        with unpacked_files(str(path), "model.tar.gz", NAMES.__contains__) as folder:
            return {
                str(file.relative_to(folder)): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file()
            }

    return read_archive


WANTED = {name: FILES[name] for name in NAMES}


def test_only_what_is_wanted(read):
    assert read(pack()) == WANTED
    # As `tar czf model.tar.gz .` names them.
    assert read(pack(files={f"./{name}": data for name, data in FILES.items()})) == WANTED
    # The last of two, as when all are unpacked.
    assert read(pack(member("config.json", size=9))) == WANTED
    assert read(pack(files={"other": b""})) == {}
    long_names = pack(member("fta/" + "x" * 300, size=3), form=tarfile.PAX_FORMAT)
    assert read(long_names) == WANTED
    links = [
        member("fta/a", tarfile.LNKTYPE, "weights.th"),
        member("fta/b", tarfile.SYMTYPE, "../weights.th"),
    ]
    assert read(pack(*links)) == WANTED


@pytest.mark.parametrize(
    "made",
    [
        member("../outside", size=3),
        member("/tmp/outside", size=3),
        member("fta/../../outside", size=3),
        member("..", tarfile.DIRTYPE),
        member("vocabulary", tarfile.SYMTYPE, "/etc"),
        member("fta/x", tarfile.SYMTYPE, "../../outside"),
        member("fta/x", tarfile.LNKTYPE, "../outside"),
        member("fta/x", tarfile.LNKTYPE, "/etc/passwd"),
        member("device", tarfile.CHRTYPE),
        member("device", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE),
        member("\x1b[31m/../../x", size=3),
    ],
    ids=lambda made: repr(made.name),
)
def test_outside_and_devices(made, read, tmp_path):
    message = "^model.tar.gz: .* is a device, or lies or links outside of the archive"
    with pytest.raises(ValueError, match=message) as caught:
        read(pack(made))
    assert str(caught.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["model.tar.gz"]


@pytest.mark.parametrize(
    "made",
    [
        member("config.json", tarfile.SYMTYPE, "notes.txt"),
        member("config.json", tarfile.LNKTYPE, "notes.txt"),
        member("weights.th", tarfile.DIRTYPE),
        member("weights.th", tarfile.GNUTYPE_SPARSE),
    ],
    ids=lambda made: repr(made.name),
)
def test_no_file_where_one_must_be(made, read):
    with pytest.raises(ValueError, match="^model.tar.gz"):
        read(pack(made))


def test_bombs(read, monkeypatch):
    """Sizes are those of the contents, not those that headers tell."""
    monkeypatch.setattr(model_archive, "allowance", lambda size: max(2**20, 100 * size))
    message = "^model.tar.gz: unpacks to more than 100 times its size"
    started = time.monotonic()
    for name in ("weights.th", "other", "config.json"):
        with pytest.raises(ValueError, match=message):
            read(pack(member(name, size=2**26)))
    with pytest.raises(ValueError, match=message):
        read(pack() + bytes(2**26) + pack())
    # Headers that are larger than the files.
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        with pytest.raises(ValueError, match="a header of 268,435,456 bytes"):
            read(member("x", kind, size=2**28).tobuf(tarfile.GNU_FORMAT) + bytes(2**20))
    assert time.monotonic() - started < 20


def test_many_files(read, monkeypatch):
    monkeypatch.setattr(model_archive, "_MAX_MEMBERS", 100)
    with pytest.raises(ValueError, match="^model.tar.gz: has more than 100 files"):
        read(pack(*(member(f"{i}") for i in range(100))))


def test_declared_size(read):
    """A header may tell any size."""
    data = member("weights.th", size=6000).tobuf(tarfile.GNU_FORMAT) + bytes(2**12)
    with pytest.raises(ValueError, match="model.tar.gz is not a model.tar.gz, or one cut off"):
        read(data)
    for name in ("weights.th", "other"):
        data = member(name, size=2**40).tobuf(tarfile.GNU_FORMAT) + bytes(2**12)
        with pytest.raises(ValueError, match="^model.tar.gz: unpacks to more than 100 times"):
            read(data)


def test_cut_off_and_damaged(read):
    sound = gzip.compress(pack())
    for size in [*range(0, len(sound) - 8, 61), len(sound) - 1]:
        with pytest.raises(ValueError, match="model.tar.gz is not a model.tar.gz, or one cut off"):
            read(sound[:size], compressed=False)
    damaged = sound[:2000] + bytes(40) + sound[2040:]
    with pytest.raises(ValueError, match="not a model.tar.gz, or one cut off"):
        read(damaged, compressed=False)
    with pytest.raises(ValueError, match="not a model.tar.gz, or one cut off"):
        read(pack(), compressed=False)


def test_full_disk_is_not_the_archives_fault(tmp_path):
    def read_on_full_disk():
        limit_file_size(3000)
        with pytest.raises(OSError, match="cannot unpack model.tar.gz: File too large; make room"):
            with unpacked_files(str(path), "model.tar.gz", NAMES.__contains__):
                pass

    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(pack()))
    assert fork(read_on_full_disk) == 0
