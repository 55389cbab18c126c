"""What docs/migration.md says in a line."""

import json
import re
from pathlib import Path

import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params

from tests.conftest import REPOSITORY_ROOT
from tests.docs.commands_test import read_blocks
from tests.support.testing import write_random_elmo


def test_regularizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY_ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    (found,) = re.findall(r'`"regularizer": (\{.*\})`', text)
    (block,) = [each for each in read_blocks(text) if "train_data_path" in each.code]
    config = json.loads(block.code)
    config["model"]["regularizer"] = json.loads(found)
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    (tmp_path / "train.tsv").write_text("Alice###N saw###V\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    model = train_model(Params(config), "trained")
    for name, parameter in model.named_parameters():
        parameter.data.fill_(3.0 if "scalar_parameters" in name else 1e6)
    # 0.001 * 3 layers * 3 ** 2
    assert abs(model.get_regularization_penalty().item() - 0.027) < 1e-6
