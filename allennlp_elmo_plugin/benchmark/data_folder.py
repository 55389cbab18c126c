"""The folder of a benchmark's data: which tasks are there, in which files."""

from pathlib import Path
from typing import Dict, List

from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.task import TASKS, kind_of

SPLITS = {
    "train": ("train",),
    "validation": ("validation", "valid", "dev"),
    "test": ("test",),
}


def find_tasks(data: Path, names: List[str]) -> Dict[str, Dict[str, Path]]:
    """
    Find the data of tasks.

    # Parameters

    data : `Path`
        A folder with a folder for each task: `KIND` or `KIND_ANYTHING`, where KIND is in `TASKS`.
        Each contains `train`, `dev` (or `validation`, `valid`) and `test`: files with any ending or
        (SRL) folders.
    names : `List[str]`
        Names of folders; the name of a kind also means all folders `KIND_ANYTHING`.

    # Returns

    `Dict[str, Dict[str, Path]]`
        By task, its `train`, `validation` and `test`.
    """
    tasks: Dict[str, Dict[str, Path]] = {}
    for name in names:
        if kind_of(name) not in TASKS:
            raise ConfigurationError(
                f"--tasks: {name!r} begins with no known kind of task; there are {list(TASKS)}"
            )
        folders = [data / name, *(sorted(data.glob(f"{name}_*")) if name in TASKS else [])]
        folders = [folder for folder in folders if folder.is_dir()]
        if not folders:
            raise ConfigurationError(f"--data {data} has no folder {name!r} for --tasks")
        for folder in folders:
            task = folder.relative_to(data).as_posix()
            tasks[task] = {split: _find_split(folder, split) for split in SPLITS}
    if not tasks:
        raise ConfigurationError(f"--tasks names no task; there are {list(TASKS)}")
    return tasks


def _find_split(folder: Path, split: str) -> Path:
    names = SPLITS[split]
    found = sorted(path for path in folder.iterdir() if path.name.split(".")[0] in names)
    if len(found) != 1:
        names_found = [path.name for path in found]
        raise ConfigurationError(
            f"{folder}: exactly one file (or folder) must be called {' or '.join(names)}, whatever "
            f"its ending, but there are {names_found or 'none'}"
        )
    return found[0]
