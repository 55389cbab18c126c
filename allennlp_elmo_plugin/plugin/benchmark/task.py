"""The kinds of tasks in the benchmark, and the files of their data."""

from pathlib import Path
from typing import NamedTuple

from allennlp.common.checks import ConfigurationError


class Task(NamedTuple):
    """The official score, the validation metric, and ELMo's gain in Peters et al. (2018)."""

    score_name: str
    allennlp_metric: str
    paper_delta: float | None = None


TASKS: dict[str, Task] = {
    "sst5": Task("accuracy", "accuracy", 3.3),
    "ner": Task("f1", "f1-measure-overall", 2.06),
    "chunking": Task("f1", "f1-measure-overall"),
    "snli": Task("accuracy", "accuracy", 0.7),
    "srl": Task("f1", "f1-measure-overall", 3.2),
    "coref": Task("f1", "coref_f1", 3.2),
    "squad": Task("f1", "f1", 4.7),
    "imdb": Task("accuracy", "accuracy"),
    "constituency": Task("f1", "evalb_f1_measure"),
}
"""The tasks by kind, which is the first part of the name of a task's folder."""

MODELS = {"baseline": "baseline", "vectors": "word vectors", "elmo": "+ ELMo"}
"""The models of each task with their titles. ELMo is added to the model before it."""

_SPLITS = {"train": ["train"], "validation": ["validation", "valid", "dev"], "test": ["test"]}


def kind_of(task: str) -> str:
    """Return the kind of a task: `ner` for `ner_wnut17`, `snli` for `snli_cad/original`."""
    return task.split("/")[0].split("_")[0]


def find_tasks(data: Path, names: list[str]) -> dict[str, dict[str, Path]]:
    """
    Return the paths of `train`, `validation` and `test` by task. They are files with any ending, or
    folders for SRL. The arguments are the command's `--data` and `--tasks`.
    """
    tasks: dict[str, dict[str, Path]] = {}
    for name in names:
        if kind_of(name) not in TASKS:
            raise ConfigurationError(f"--tasks: {name!r} begins with no kind of {list(TASKS)}")
        folders = [data / name, *(sorted(data.glob(f"{name}_*")) if name in TASKS else [])]
        folders = [folder for folder in folders if folder.is_dir()]
        if not folders:
            raise ConfigurationError(f"--data {data} has no folder {name!r} for --tasks")
        for folder in folders:
            task = tasks[folder.relative_to(data).as_posix()] = {}
            for split, beginnings in _SPLITS.items():
                paths = [path for path in folder.iterdir() if path.name.split(".")[0] in beginnings]
                if len(paths) != 1:
                    raise ConfigurationError(
                        f"{folder}: one file (or folder) must be called {' or '.join(beginnings)}, "
                        f"with any ending; there are {[path.name for path in paths] or 'none'}"
                    )
                task[split] = paths[0]
    return tasks
