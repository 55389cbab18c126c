"""The Python and JSON of docs/migration.md."""

import json
import re
from pathlib import Path
from typing import List

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.modules import TokenEmbedder

from tests.support.testing import write_random_elmo

TEXT = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")


def blocks(language: str) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", blocks("python"))
def test_python(folder: Path, code: str) -> None:
    exec(compile(code, "migration.md", "exec"), {})


def test_embedder(folder: Path) -> None:
    embedder = TokenEmbedder.from_params(Params(json.loads(blocks("jsonnet")[0])))
    assert embedder._elmo._elmo_lstm.initial_state == "settled"


def test_config(folder: Path) -> None:
    (folder / "train.tsv").write_text("Alice###N saw###V\nit###N\n", encoding="utf-8")
    model = train_model(Params(json.loads(blocks("jsonnet")[1])), "trained")
    assert model.vocab.get_vocab_size("elmo_words") == 5


def test_regularizer(folder: Path) -> None:
    (found,) = re.findall(r'`"regularizer": (\{.*\})`', TEXT)
    config = json.loads(blocks("jsonnet")[1])
    config["model"]["regularizer"] = json.loads(found)
    (folder / "train.tsv").write_text("Alice###N saw###V\n", encoding="utf-8")
    model = train_model(Params(config), "trained")
    for name, parameter in model.named_parameters():
        parameter.data.fill_(3.0 if "scalar_parameters" in name else 1e6)
    # 0.001 * 3 layers * 3 ** 2
    assert abs(model.get_regularization_penalty().item() - 0.027) < 1e-6
