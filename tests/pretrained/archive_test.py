import gzip
import io
import os
import tarfile
import time
import zipfile

import pytest

from allennlp_elmo_plugin.pretrained import archive as model_archive
from allennlp_elmo_plugin.pretrained.archive import is_archive, model_folder
from tests.support.testing import read_files

WANTED = {"config.json": b"{}", "weights.th": os.urandom(5000), "vocabulary/lm_tokens.txt": b"<S>"}
FILES = {**WANTED, "notes.txt": b"not unpacked", "fta/x": b"nor this", "._options.json": b"mac"}
UNPACKED = "^model.tar.gz: can't be unpacked"


def member(name, kind=tarfile.REGTYPE, link="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def pack(*members, files=FILES):
    """A tar of `files`, and before them of `members`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info in members:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
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
        path.write_bytes(gzip.compress(data, 1) if compressed else data)
        with model_folder(str(path), "model.tar.gz") as folder:
            return read_files(folder)

    return read_archive


def test_only_the_files_of_a_model_are_unpacked(read):
    # As `tar czf model.tar.gz .` names them; the last of two, as when all are unpacked.
    named = {f"./{name}": data for name, data in FILES.items()}
    assert read(pack(member("config.json", size=9), files=named)) == WANTED
    assert read(pack_zip(), compressed=False) == WANTED
    in_a_folder = {f"elmo\\{name}": data for name, data in FILES.items()}  # of Windows
    assert read(pack_zip(in_a_folder), compressed=False) == WANTED


@pytest.mark.parametrize(
    "name, kind, link",
    [
        ("vocabulary", tarfile.SYMTYPE, "/etc"),
        ("a_options.json", tarfile.SYMTYPE, "../../outside"),
        ("a_options.json", tarfile.LNKTYPE, "/etc/passwd"),
        ("a_options.json", tarfile.FIFOTYPE, ""),
        ("a_options.json", tarfile.GNUTYPE_SPARSE, ""),
        ("../options.json", tarfile.REGTYPE, ""),
        ("/tmp/options.json", tarfile.REGTYPE, ""),
        ("..\\options.json", tarfile.REGTYPE, ""),
        ("\\\\server\\share\\options.json", tarfile.REGTYPE, ""),
        ("C:/options.json", tarfile.REGTYPE, ""),
        ("C:options.json", tarfile.REGTYPE, ""),
        ("a/C:\\options.json", tarfile.REGTYPE, ""),
        ("options.json:options.json", tarfile.REGTYPE, ""),
        ("con.json", tarfile.REGTYPE, ""),
        ("LPT¹/options.json", tarfile.REGTYPE, ""),
        ("a. /options.json", tarfile.REGTYPE, ""),
        ("a?options.json", tarfile.REGTYPE, ""),
    ],
)
def test_links_devices_and_files_outside_are_left_out(name, kind, link, read, tmp_path):
    assert read(pack(member(name, kind, link))) == WANTED
    if kind == tarfile.REGTYPE:
        assert read(pack_zip({**FILES, name: b"123"}), compressed=False) == WANTED
    assert [path.name for path in tmp_path.iterdir()] == ["model.tar.gz"]


def test_archives_without_one_model(read):
    for names, message in (
        (["x/b", "a", ".hidden"], " has 0 models: expected the files of"),
        (["a/options.json", "b/config.json"], " has 2 models: expected the files of"),
    ):
        with pytest.raises(ValueError, match=f"^model.tar.gz{message}"):
            read(pack(files=dict.fromkeys(names, b"")))
    names = {"options.json", "b/options.json"}
    assert set(read(pack(files=dict.fromkeys(names, b"")))) == names
    assert set(read(pack(files={"a/b/x_options.json": b""}))) == {"x_options.json"}


def test_archives_of_many_folders_are_refused(read):
    many = [f"{i}/options.json" for i in range(11_000)]
    start = time.process_time()
    with pytest.raises(ValueError, match=f"{UNPACKED} .it has more than 10,000 files and folders"):
        read(pack(*[member(name, tarfile.DIRTYPE) for name in many]))
    with pytest.raises(ValueError, match=f"{UNPACKED} .it has more than 10,000 files and folders"):
        read(pack_zip(dict.fromkeys(many, b"")), compressed=False)
    assert time.process_time() - start < 20


def test_folders_and_errors(tmp_path):
    with model_folder(str(tmp_path), "x") as folder:
        assert folder == tmp_path
    with pytest.raises(ValueError, match="^x is not a model: expected"):
        with model_folder("/dev/null", "x"):
            pass
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(pack()))
    assert is_archive(str(path)) and not is_archive(str(tmp_path))
    for kind in (ValueError, FileNotFoundError):
        with pytest.raises(kind, match="^model.tar.gz/config.json is wrong$"):
            with model_folder(str(path), "model.tar.gz") as folder:
                raise kind(f"{folder}/config.json is wrong")
    assert not folder.exists()


def test_archives_that_unpack_to_too_much_are_refused(read, monkeypatch):
    monkeypatch.setattr(model_archive, "allowance", lambda size: max(2**18, 100 * size))
    message = f"{UNPACKED} .it unpacks to more than 100 times its size"
    bombs = [pack(member(name, size=2**24)) for name in ("weights.th", "other")]
    bombs.append(pack() + bytes(2**24) + pack())
    # Headers that are larger than the files, or invent a size.
    for name, kind, size in (
        ("x", tarfile.XHDTYPE, 2**26),
        ("x", tarfile.GNUTYPE_LONGNAME, 2**26),
        ("weights.th", tarfile.REGTYPE, 2**40),
    ):
        bombs.append(member(name, kind, size=size).tobuf(tarfile.GNU_FORMAT) + bytes(2**22))
    for bomb in bombs:
        with pytest.raises(ValueError, match=message):
            read(bomb)
    with pytest.raises(ValueError, match=message):
        read(pack_zip({"weights.th": bytes(2**26)}), compressed=False)


@pytest.mark.parametrize("sound", [gzip.compress(pack()), pack_zip()], ids=["tar", "zip"])
def test_cut_off_and_damaged(sound, read):
    damaged = [sound[:size] for size in (0, 1, 500, len(sound) // 2, len(sound) - 9)]
    for data in (*damaged, sound[:-1], sound[:2000] + bytes(40) + sound[2040:], pack()):
        with pytest.raises(ValueError, match=UNPACKED):
            read(data, compressed=False)
