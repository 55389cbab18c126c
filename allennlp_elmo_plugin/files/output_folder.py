"""
Folders whose files appear together or not at all. A command stages its files in a hidden folder
inside the output, which may be a mount point, then renames the earlier files out and the new ones
in. A reader never sees files of two runs: the first name is the one that every reader requires, and
it leaves first and arrives last. One process at a time may write (see `Staging`). If it is killed
before that last move, the next process first undoes the others.
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Sequence, Union

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.whole_file import Staging, sync, sync_folder

_STAGING = ".elmo.partial"
_IGNORED = (_STAGING, "lost+found")  # Each new file system has the latter.

# In the staging folder: the new files, the earlier files, and the list of names, which is called
# after the direction of the current moves.
_NEW, _OLD, _MOVING_OUT, _MOVING_IN = "new", "old", "moving-out", "moving-in"


@contextmanager
def output_folder(
    path: Union[str, "os.PathLike[str]"], names: Sequence[str], force: bool = False
) -> Iterator[Path]:
    """
    Write the files of a folder together or not at all.

    # Parameters

    path : `str`
        The folder, created if missing.
    names : `Sequence[str]`
        The files and subfolders that may be written, the one that every reader requires first.
        Earlier ones of these names are removed, even those that are not written this time.
    force : `bool`, optional (default = `False`)
        Whether the folder may have content. What has other names stays.

    # Returns

    `Iterator[Path]`
        The folder to write to. What isn't in `names` is dropped at the end.

    # Raises

    `ConfigurationError`
        The path is a file, or the folder has content.
    """
    if not os.fspath(path):
        raise ConfigurationError("the output is an empty name; give a folder")
    folder = Path(os.path.abspath(os.path.expanduser(path)))
    made = _make(folder)
    try:
        with Staging(folder / _STAGING, folder) as staging:
            _undo(folder, staging)
            staging.clear()
            if not force and any(item not in _IGNORED for item in os.listdir(folder)):
                raise ConfigurationError(
                    f"The folder {path} is not empty; choose another output, or --force to replace "
                    "what this command writes there"
                )
            new = staging.path / _NEW
            new.mkdir()
            yield new
            sync(new)
            _swap(folder, staging, names)
    except BaseException:
        for each in reversed(made):
            try:
                each.rmdir()
            except OSError:
                break
        raise


def _make(folder: Path) -> List[Path]:
    """Create a folder and its missing parents, and return what was created, parents first."""
    if folder.is_symlink() and not folder.exists():
        raise ConfigurationError(
            f"{folder} is a link to {os.readlink(folder)}, which does not exist; choose another "
            "output"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file, not a folder; choose another output")
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    if not folder.is_dir():
        raise ConfigurationError(
            f"{missing[0]}: {folder} is a file, not a folder; choose another output"
        )
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
    return missing[::-1]


def _swap(folder: Path, staging: Staging, names: Sequence[str]) -> None:
    new, old = staging.path / _NEW, staging.path / _OLD
    old.mkdir()
    listed = staging.path / "names"
    listed.write_text(json.dumps(list(names)), encoding="utf-8")
    sync(staging.path)
    try:
        os.replace(listed, staging.path / _MOVING_OUT)
        for name in names:
            if os.path.lexists(folder / name):
                os.replace(folder / name, old / name)
        os.replace(staging.path / _MOVING_OUT, staging.path / _MOVING_IN)
        for name in reversed(names):
            if os.path.lexists(new / name):
                os.replace(new / name, folder / name)
        sync_folder(folder)
        os.remove(staging.path / _MOVING_IN)
    except BaseException:
        _undo(folder, staging)
        raise


def _undo(folder: Path, staging: Staging) -> None:
    """
    Restore what was there before an unfinished swap. If this is interrupted, it can be repeated.
    """
    new, old = staging.path / _NEW, staging.path / _OLD
    moving_in, moving_out = staging.path / _MOVING_IN, staging.path / _MOVING_OUT
    staging.keep = True
    if moving_in.exists():
        first, *others = _read_names(moving_in)
        if os.path.lexists(folder / first):  # It comes last: the swap was finished.
            os.remove(moving_in)
        else:
            for name in others:
                if os.path.lexists(folder / name):
                    os.replace(folder / name, new / name)
            os.replace(moving_in, moving_out)
    if moving_out.exists():
        for name in reversed(_read_names(moving_out)):
            if os.path.lexists(old / name):
                os.replace(old / name, folder / name)
        os.remove(moving_out)
    staging.keep = False


def _read_names(path: Path) -> List[str]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
        if names and all(
            os.path.basename(name) == name and name not in ("", ".", "..") for name in names
        ):
            return list(names)
    except (TypeError, ValueError):
        pass
    raise ConfigurationError(
        f"{path} does not list names in a folder, so this package did not write it; remove the "
        f"folder {path.parent}"
    )
