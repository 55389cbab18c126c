"""Data of a few sentences for each kind of task, as elmo-benchmark reads it."""

import shutil
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "tasks"
# Folder, fixture, ending
TASK_DATA = [
    ("sst5", "sst.txt", ".txt"),
    ("ner_made", "ner.txt", ".conll4.txt"),
    ("chunking", "chunking.txt", ".txt"),
    ("snli", "snli.jsonl", ".jsonl"),
    ("srl", "srl", ""),
    ("coref", "coref.gold_conll", ".gold_conll"),
    ("squad", "squad.json", ".json"),
    ("imdb", "imdb.jsonl", ".jsonl"),
    ("constituency", "ptb.txt", ".mrg"),
]


def write_task_data(folder):
    """Writes a folder of data, with the same in each split, and returns it."""
    for task, fixture, ending in TASK_DATA:
        (folder / task).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            source, target = FIXTURES / fixture, folder / task / f"{split}{ending}"
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return folder
