import os
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.training.early_checks import check_early
from tests.support.training_runs import write_config

N_WORDS = 63


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model.num_samples": 8192}, rf"8192 .* has {N_WORDS} words.*model.num_samples.*auto"),
        ({"model.num_samples": N_WORDS}, f"draws {N_WORDS} distinct"),
        ({"model.num_samples": None}, "8192"),  # the default of the options
        ({"model.num_samples": "many"}, 'a whole number or "auto"'),
        ({"model.options": None, "model.num_samples": 100}, "100 distinct"),
        ({"model.options.lstm.projection_dim": 1000}, "projection_dim"),
        ({"vocabulary.directory": "nowhere"}, "nowhere, does not exist.*elmo-vocab"),
        ({"vocabulary.directory": "{data}/shards"}, "lm_tokens.txt is missing.*elmo-vocab"),
        ({"vocabulary.directory": __file__}, "early_checks_test.py, is a file.*elmo-vocab"),
        ({"dataset_reader.batch_size": 1000}, "shards is smaller than one batch"),
        ({"validation_data_path": "nowhere.txt"}, "nowhere.txt does not exist"),
        ({"test_data_path": "nowhere.txt"}, "nowhere.txt does not exist"),
        ({"train_data_path": ""}, "The name of the text is empty"),
        ({"train_data_path": None}, "There is no train_data_path"),
    ],
    ids=str,
)
def test_before_the_folder_is_made(
    changes: Dict[str, Any], message: str, data: Path, tmp_path: Path
) -> None:
    filled = {
        key: value.format(data=data) if isinstance(value, str) else value
        for key, value in changes.items()
    }
    params = Params.from_file(write_config(tmp_path, data, filled))
    with pytest.raises(ConfigurationError, match=message):
        train_model(params, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "key, reader",
    [
        ("train_data_path", "dataset_reader"),
        ("validation_data_path", "validation_dataset_reader"),
    ],
)
@pytest.mark.parametrize("encoding, line", [("latin1", 301), ("utf-16", 1)])
def test_text_in_other_encodings(
    key: str, reader: str, encoding: str, line: int, data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my text"
    path.write_bytes(("A bar .\n" * 300 + "A caf\xe9 .\n").encode(encoding))
    params = Params.from_file(write_config(tmp_path, data, {key: str(path)}))
    message = f"my text, line {line}: byte 0x.. is not UTF-8.*iconv -f {encoding.upper()} "
    with pytest.raises(ConfigurationError, match=message):
        train_model(params, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    changes = {key: str(path), f"{reader}.encoding_errors": "replace"}
    check_early(Params.from_file(write_config(tmp_path, data, changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.num_samples": "auto"},
        {"vocabulary": {"type": "from_files", "directory": "https://example.com/vocab.tar.gz"}},
        {"dataset_reader": {"type": "mine"}, "train_data_path": "s3://text"},
        {"model": "mine"},
        {"type": "mine", "train_data_path": None},
    ],
    ids=str,
)
def test_what_can_be_checked_is(changes: Dict[str, Any], data: Path, tmp_path: Path) -> None:
    check_early(Params.from_file(write_config(tmp_path, data, changes)))


def test_folder_of_elmo_vocab(data: Path, tmp_path: Path) -> None:
    changes = {"vocabulary.directory": str(data / "vocabulary")}
    check_early(Params.from_file(write_config(tmp_path, data, changes)))


def test_changes_nothing(data: Path, tmp_path: Path) -> None:
    params = Params.from_file(write_config(tmp_path, data, {}))
    before = params.as_dict(quiet=True), sorted(os.listdir(data))
    check_early(params)
    assert (params.as_dict(quiet=True), sorted(os.listdir(data))) == before
