import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union

from allennlp.common.checks import ConfigurationError


def check_output_folder(path: Union[str, "os.PathLike[str]"], force: bool = False) -> Path:
    """
    Checks that a command may write a folder: that it is new or empty, or `force` is given.

    # Raises

    `ConfigurationError`
        It is a file, or there is something in it.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file, not a folder; choose another output")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ConfigurationError(
            f"The folder {folder} is not empty; choose another output, or --force to replace what "
            "this command writes there"
        )
    return folder


@contextmanager
def output_folder(path: Union[str, "os.PathLike[str]"], force: bool = False) -> Iterator[Path]:
    """
    A folder to write to, which becomes `path` when the `with` block ends well. After an error
    nothing has changed.

    # Parameters

    path : `str`
        The folder that the files are for.
    force : `bool`, optional (default = `False`)
        Whether files of the same names that are there already are replaced. Others stay.
    """
    folder = check_output_folder(path, force).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        made = Path(temporary, folder.name)
        made.mkdir()
        yield made
        if not folder.exists():
            os.replace(made, folder)
            return
        for item in sorted(made.iterdir()):
            target = folder / item.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(item, target)
