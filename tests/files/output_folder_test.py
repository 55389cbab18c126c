"""Folders whose files appear together or not at all."""

import errno
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.output_folder import output_folder
from allennlp_elmo_plugin.files.whole_file import remove
from tests.support.testing import fork, limit_file_size, tmpfs

NAMES = ("options", "weights", "vocabulary", "extra")


@pytest.fixture(autouse=True)
def _leaves_no_staging(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.rglob("*.partial"))


def write(folder: Any, version: str, force: bool = True, extra: bool = False) -> None:
    with output_folder(folder, NAMES, force) as new:
        (new / "options").write_text(version, encoding="utf-8")
        (new / "weights").write_text(version, encoding="utf-8")
        (new / "vocabulary").mkdir()
        (new / "vocabulary" / "words").write_text(version, encoding="utf-8")
        if extra:
            (new / "extra").write_text(version, encoding="utf-8")
        (new / "scratch").write_text(version, encoding="utf-8")


def read(folder: Path) -> Any:
    """What a reader finds: by name, the version."""
    found = {name: folder / name for name in ("options", "weights", "extra")}
    found["words"] = folder / "vocabulary" / "words"
    return {name: path.read_text("utf-8") for name, path in found.items() if path.exists()}


def whole(version: str, extra: bool = False) -> Any:
    files = {"options": version, "weights": version, "words": version}
    return {**files, "extra": version} if extra else files


def test_new_folder(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "out", "1", force=False)
    assert read(tmp_path / "a" / "b" / "out") == whole("1")
    assert sorted(os.listdir(tmp_path / "a" / "b" / "out")) == sorted(NAMES[:3])


def test_an_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="the output is an empty name"):
        write("", "1")
    assert not os.listdir(tmp_path)


def test_error(tmp_path: Path) -> None:
    write(tmp_path / "out", "1")
    for path in (tmp_path / "out", tmp_path / "new" / "folder"):
        with pytest.raises(KeyboardInterrupt):
            with output_folder(path, NAMES, force=True) as new:
                (new / "options").touch()
                raise KeyboardInterrupt
    assert read(tmp_path / "out") == whole("1")
    assert os.listdir(tmp_path) == ["out"]


def test_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine", encoding="utf-8")
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(ConfigurationError, match="is not empty; .*--force"):
        write(tmp_path, "1", force=False)
    assert sorted(os.listdir(tmp_path)) == ["lost+found", "notes"]
    write(tmp_path, "1")
    assert (tmp_path / "notes").read_text(encoding="utf-8") == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lost+found").mkdir()  # a new file system is empty
    write(tmp_path / "other", "1", force=False)


def test_earlier_files_go_even_if_there_are_no_new_ones(tmp_path: Path) -> None:
    write(tmp_path / "out", "1", extra=True)
    (tmp_path / "out" / "vocabulary" / "labels").touch()
    write(tmp_path / "out", "2")
    assert read(tmp_path / "out") == whole("2")
    assert os.listdir(tmp_path / "out" / "vocabulary") == ["words"]


def test_links_in_the_folder_are_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "words").write_text("shared", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "vocabulary").symlink_to(tmp_path / "shared")
    (tmp_path / "out" / "options").symlink_to(tmp_path / "shared" / "words")
    (tmp_path / "out" / "weights").symlink_to("missing")
    (tmp_path / "out" / "extra").symlink_to("missing")
    write(tmp_path / "out", "1")
    assert read(tmp_path / "out") == whole("1")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert (tmp_path / "shared" / "words").read_text(encoding="utf-8") == "shared"
    assert os.listdir(tmp_path / "shared") == ["words"]


def test_the_folder_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    write(tmp_path / "out", "1", force=False)
    assert (tmp_path / "out").is_symlink()
    assert read(tmp_path / "disk") == whole("1")
    (tmp_path / "dangling").symlink_to("missing")
    with pytest.raises(ConfigurationError, match="is a link to missing, which does not exist"):
        write(tmp_path / "dangling", "1")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ConfigurationError, match="file is a file, not a folder"):
            write(path, "1")
    # One of another kind in the place of ours, if asked for.
    (tmp_path / "out" / "weights").mkdir(parents=True)
    (tmp_path / "out" / "vocabulary").touch()
    write(tmp_path / "out", "1")
    assert read(tmp_path / "out") == whole("1")


@pytest.mark.parametrize("mask, mode", [(0o022, 0o755), (0o077, 0o700)])
def test_permissions(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "out", "1")
    finally:
        os.umask(before)
    for path, expected in (("", mode), ("vocabulary", mode), ("options", mode & 0o666)):
        assert stat.S_IMODE((tmp_path / "out" / path).stat().st_mode) == expected


def test_a_mount_point(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with tmpfs(tmp_path / "out"):
        for force in (False, True):
            write(tmp_path / "out", str(force), force)
            assert read(tmp_path / "out") == whole(str(force))
        assert not list((tmp_path / "out").rglob("*.partial"))


@pytest.mark.parametrize("n_renames", range(1, 10))
def test_a_rename_that_fails(
    n_renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "out", "1", extra=True)
    replace, calls = os.replace, []

    def rename(source: Any, target: Any) -> None:
        calls.append(source)
        if len(calls) == n_renames:
            raise OSError(errno.EBUSY, "Device or resource busy", source)
        replace(source, target)

    with monkeypatch.context() as context:
        context.setattr(os, "replace", rename)
        with pytest.raises(OSError, match="busy"):
            write(tmp_path / "out", "2")
    assert read(tmp_path / "out") == whole("1", extra=True)


@pytest.mark.parametrize("before", [None, "1"])
def test_killed_at_any_moment(before: Optional[str], tmp_path: Path) -> None:
    """A reader finds all files of one version, or not the first of them."""
    folder = tmp_path / "out"
    seen = set()
    for moment in range(1000):
        if before is None:
            remove(folder)
        else:
            write(folder, before, extra=True)
            (folder / "notes").write_text("mine", encoding="utf-8")
        killed = (
            fork(lambda: write(folder, "2", force=before is not None), kill_at=moment)
            == signal.SIGKILL
        )
        found = read(folder)
        assert len(set(found.values())) < 2
        assert "options" not in found or found in (whole("2"), whole("1", extra=True))
        seen.add(found.get("options"))
        # Another command, that writes other things, leaves it as it was before.
        if moment % 3 == 0:
            with output_folder(folder, ["table"], force=True) as new:
                (new / "table").touch()
            expected: Any = {} if before is None else whole(before, extra=True)
            assert read(folder) == (
                whole("2") if "options" in found and found != expected else expected
            )
            os.remove(folder / "table")
        if read(folder) != whole("2"):
            write(folder, "2", force=before is not None)
        else:
            write(folder, "2")
        assert read(folder) == whole("2")
        assert not list(folder.glob(".*"))
        if before is not None:
            assert (folder / "notes").read_text(encoding="utf-8") == "mine"
        if not killed:
            break
    assert seen == {None, before, "2"} and moment > 20


def test_killed_while_it_undoes_what_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    replace = os.replace

    def die_before_the_last_move(source: Any, target: Any) -> None:
        if Path(target) == folder / "options":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    def die() -> None:
        os.replace = die_before_the_last_move
        write(folder, "2")

    for moment in range(1000):
        write(folder, "1", extra=True)
        assert fork(die) == signal.SIGKILL
        assert read(folder) == {"weights": "2", "words": "2"}
        killed = fork(lambda: write(folder, "3", False), kill_at=moment) == signal.SIGKILL
        found = read(folder)
        assert "options" not in found or found == whole("1", extra=True)
        with pytest.raises(ConfigurationError, match="is not empty"):
            write(folder, "4", force=False)
        assert read(folder) == whole("1", extra=True)
        if not killed:
            break
    assert moment > 10


def test_two_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with output_folder(folder, NAMES) as new:
        (new / "options").write_text("first", encoding="utf-8")
        with pytest.raises(OSError, match="another process is writing it; wait.*/out'"):
            write(folder, "second")
        assert fork(lambda: write(folder, "second")) != 0
    assert read(folder) == {"options": "first"}


@pytest.mark.parametrize("n_bytes", [0, 3, 20])
def test_full_disk(n_bytes: int, tmp_path: Path) -> None:
    """Also for the list of names, at the very end."""
    folder = tmp_path / "out"
    write(folder, "1")

    def fill() -> None:
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: File too large; nothing has changed.*out"):
            write(folder, "22222" if n_bytes == 3 else "2")

    assert fork(fill) == 0
    assert read(folder) == whole("1")


def test_full_tmpfs(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with tmpfs(tmp_path / "out", size="64k"):
        write(tmp_path / "out", "1")
        with pytest.raises(OSError, match="No space left on device"):
            write(tmp_path / "out", "2" * 100_000)
        assert read(tmp_path / "out") == whole("1")
        assert sorted(os.listdir(tmp_path / "out")) == sorted(NAMES[:3])


@pytest.mark.parametrize("names", [["../notes"], [".."], [""], [1], {}, "x/y"])
def test_a_list_of_names_by_a_stranger(names: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    staging = tmp_path / "out" / ".elmo.partial"
    for moving in ("moving-in", "moving-out"):
        staging.mkdir(parents=True)
        (staging / moving).write_text(json.dumps(names), encoding="utf-8")
        with pytest.raises(ConfigurationError, match="moving-.*remove the folder .*partial"):
            write(tmp_path / "out", "1")
        remove(staging)
    assert (tmp_path / "notes").exists()
