"""Machines that do not fit together: real processes, each with a folder and data of its own."""

import os
import shutil
from pathlib import Path
from typing import Any, List

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.training.machines import check_same, is_local_primary
from tests.support.process_group import run_processes
from tests.support.training_runs import train_in_group, write_config

CHANGES = {
    "trainer.num_epochs": 1,
    "dataset_reader.batch_size": 2,
    "validation_dataset_reader.batch_size": 2,
}


def _primaries(rank: int) -> Any:
    primaries = []
    for n in (1, 2, 4):
        os.environ["ALLENNLP_PROCS_PER_NODE"] = str(n)
        primaries.append(is_local_primary())
    with pytest.raises(ConfigurationError) as error:
        check_same(rank % 2, "differs in {ranks}")
    check_same("same", "")
    return primaries, str(error.value)


def test_ranks(tmp_path: Path) -> None:
    assert run_processes(4, tmp_path, _primaries) == [
        ([True, True, True], "differs in 1, 3"),
        ([True, False, False], "differs in 1, 3"),
        ([True, True, False], "differs in 1, 3"),
        ([True, False, False], "differs in 1, 3"),
    ]
    assert is_local_primary()
    check_same(1, "")


def train(folder: Path, configs: List[Path], folders: List[Path]) -> List[Any]:
    for each in folders:
        each.mkdir(exist_ok=True)
    group = folder / f"group_{len(list(folder.glob('group_*')))}"
    group.mkdir()
    return run_processes(2, group, train_in_group, configs, folders, 1)


def configs(folder: Path, data: Path, *changes: Any) -> List[Path]:
    paths = []
    for rank, each in enumerate(changes):
        path = write_config(folder, data, {**CHANGES, **each})
        paths.append(path.rename(folder / f"config_{rank}.json"))
    return paths


def test_other_data(data: Path, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    shutil.copytree(data / "vocabulary" / "vocabulary", vocabulary)
    with open(vocabulary / "lm_tokens.txt", "a", encoding="utf-8") as file:
        file.write("another\n")
    folders = [tmp_path / "first", tmp_path / "second"]
    for key, path in {
        "vocabulary.directory": vocabulary,
        "train_data_path": data / "heldout.txt",
        "validation_data_path": data / "shards" / "0.txt",
    }.items():
        what = "vocabulary" if key.startswith("voc") else "text for training or validation"
        for message in train(tmp_path, configs(tmp_path, data, {}, {key: str(path)}), folders):
            assert f"The {what}" in message and "rank 1" in message, key


def test_other_checkpoints(data: Path, tmp_path: Path) -> None:
    both = configs(tmp_path, data, *[{"train_data_path": str(data / "heldout.txt")}] * 2)
    folders = [tmp_path / "first", tmp_path / "second"]
    assert all("training_loss" in metrics for metrics in train(tmp_path, both, folders))
    for message in train(tmp_path, both, [folders[0], tmp_path / "new"]):
        assert "last checkpoint of rank 1 is not that of rank 0. Copy the folder" in message
    for path in folders[1].glob("training_state_*.th"):
        state = torch.load(path)
        state["callbacks"][0]["processes"][0]["id"] = "another"
        torch.save(state, path)
    for message in train(tmp_path, both, folders):
        assert "the last checkpoint of rank 1 is not that of rank 0" in message
