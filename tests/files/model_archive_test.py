import gzip
import io
import os
import tarfile
import time
import zipfile

import pytest

from allennlp_elmo_plugin.files import model_archive
from allennlp_elmo_plugin.files.model_archive import model_folder
from tests.support.testing import fork, limit_file_size, read_files

WANTED = {
    "config.json": b"{}",
    "weights.th": os.urandom(5000),
    "vocabulary/lm_tokens.txt": b"<S>\n",
}
FILES = {**WANTED, "notes.txt": b"not unpacked", "fta/x": b"nor this", "._options.json": b"mac"}


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


def pack_zip(files=FILES, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.fixture
def read(tmp_path):
    def read_archive(data, compressed=True):
        path = tmp_path / "model.tar.gz"
        path.write_bytes(gzip.compress(data) if compressed else data)
        with model_folder(str(path), "model.tar.gz") as folder:
            return read_files(folder)

    return read_archive


def test_only_the_files_of_a_model_are_unpacked(read):
    assert read(pack()) == WANTED
    # As `tar czf model.tar.gz .` names them.
    assert read(pack(files={f"./{name}": data for name, data in FILES.items()})) == WANTED
    # The last of two, as when all are unpacked.
    assert read(pack(member("config.json", size=9))) == WANTED
    long_names = pack(member("fta/" + "x" * 300, size=3), form=tarfile.PAX_FORMAT)
    assert read(long_names) == WANTED
    assert read(pack_zip(), compressed=False) == WANTED
    in_a_folder = {f"elmo\\{name}": data for name, data in FILES.items()}  # of Windows
    assert read(pack_zip(in_a_folder), compressed=False) == WANTED


@pytest.mark.parametrize(
    "made",
    [
        member("../options.json", size=3),
        member("/tmp/options.json", size=3),
        member("fta/../../options.json", size=3),
        member("vocabulary", tarfile.SYMTYPE, "/etc"),
        member("a_options.json", tarfile.SYMTYPE, "../../outside"),
        member("a_options.json", tarfile.LNKTYPE, "/etc/passwd"),
        member("a_options.json", tarfile.CHRTYPE),
        member("a_options.json", tarfile.FIFOTYPE),
        member("a_options.json", tarfile.DIRTYPE),
        member("a_options.json", tarfile.GNUTYPE_SPARSE),
    ],
    ids=lambda made: f"{made.name} {made.type}",
)
def test_links_devices_and_files_outside_are_left_out(made, read, tmp_path):
    assert read(pack(made)) == WANTED
    assert [path.name for path in tmp_path.iterdir()] == ["model.tar.gz"]
    if made.type == tarfile.REGTYPE:
        data = pack_zip({**FILES, made.name: b"123", made.name.replace("/", "\\"): b"123"})
        assert read(data, compressed=False) == WANTED


def test_archives_without_one_model(read):
    def fails(message, names):
        with pytest.raises(ValueError, match=f"^model.tar.gz{message}"):
            read(pack(files=dict.fromkeys(names, b"")))

    fails(" is not the archive of a model: .* it has a, b$", ["x/b", "a", ".hidden"])
    fails(" is not the archive of a model: .* it has 0, 1.*", map(str, range(9)))
    fails(" is not the archive of a model: .* it has no files$", [])
    fails(": has several models; unpack it", ["a/options.json", "b/options.json"])
    assert set(read(pack(files=dict.fromkeys(["options.json", "b/options.json"], b"")))) == {
        "options.json",
        "b/options.json",
    }
    assert set(read(pack(files={"a/b/options.json": b""}))) == {"options.json"}


def test_folders_are_as_they_are(tmp_path):
    with model_folder(str(tmp_path), "x") as folder:
        assert folder == tmp_path
    with pytest.raises(ValueError, match="^x is not a model: expected"):
        with model_folder("/dev/null", "x"):
            pass


def test_errors_in_the_block_name_the_archive(tmp_path):
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(pack()))
    for kind in (ValueError, FileNotFoundError):
        with pytest.raises(kind, match="^model.tar.gz/config.json is wrong$"):
            with model_folder(str(path), "model.tar.gz") as folder:
                raise kind(f"{folder}/config.json is wrong")
    assert not folder.exists()


def test_archives_that_unpack_to_too_much_are_refused(read, monkeypatch):
    monkeypatch.setattr(model_archive, "allowance", lambda size: max(2**20, 100 * size))
    message = "^model.tar.gz: can't be unpacked .it unpacks to more than 100 times its size"
    started = time.monotonic()
    for name in ("weights.th", "other"):
        with pytest.raises(ValueError, match=message):
            read(pack(member(name, size=2**26)))
    with pytest.raises(ValueError, match=message):
        read(pack() + bytes(2**26) + pack())
    # Headers that are larger than the files.
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        with pytest.raises(ValueError, match=message):
            read(member("x", kind, size=2**28).tobuf(tarfile.GNU_FORMAT) + bytes(2**22))
    with pytest.raises(ValueError, match=message):
        read(pack_zip({"weights.th": bytes(2**26)}), compressed=False)
    assert time.monotonic() - started < 20


def test_sizes_that_headers_invent(read):
    for name in ("weights.th", "other"):
        data = member(name, size=2**40).tobuf(tarfile.GNU_FORMAT) + bytes(2**12)
        with pytest.raises(ValueError, match="^model.tar.gz: can't be unpacked"):
            read(data)


@pytest.mark.parametrize("sound", [gzip.compress(pack()), pack_zip()], ids=["tar", "zip"])
def test_cut_off_and_damaged(sound, read):
    message = "^model.tar.gz: can't be unpacked"
    for size in [*range(0, len(sound) - 8, 61), len(sound) - 1]:
        with pytest.raises(ValueError, match=message):
            read(sound[:size], compressed=False)
    with pytest.raises(ValueError, match=message):
        read(sound[:2000] + bytes(40) + sound[2040:], compressed=False)
    with pytest.raises(ValueError, match=message):
        read(pack(), compressed=False)


def test_encrypted_archives_are_refused(read):
    data = pack_zip({"options.json": b"{}"})
    for start, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # its flags, in two headers
        flags = data.index(start) + place
        data = data[:flags] + b"\1" + data[flags + 1 :]
    with pytest.raises(ValueError, match="model.tar.gz: .*encrypted, password required"):
        read(data, compressed=False)


def test_full_disk_is_not_the_archives_fault(tmp_path):
    def read_on_full_disk():
        limit_file_size(3000)
        with pytest.raises(OSError, match="cannot unpack model.tar.gz: File too large; make room"):
            with model_folder(str(path), "model.tar.gz"):
                pass

    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(pack()))
    assert fork(read_on_full_disk) == 0
