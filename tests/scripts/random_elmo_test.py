import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.modules.elmo_files import find_model


def test_random_elmo(
    tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with find_model("tiny") as tiny:
        options = tiny.options
        models = []
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            script = str(repository_root / "scripts" / "random_elmo.py")
            output = str(tmp_path / name)
            arguments = [script, str(options), output, "--seed", seed]
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(script, run_name="__main__")
            models.append(Elmo(output))
        assert (tmp_path / "a" / "options.json").read_text() == options.read_text()
        with pytest.raises(SystemExit, match="c is not empty; .* --force"):
            runpy.run_path(script, run_name="__main__")
        monkeypatch.setattr(sys, "argv", [script, str(options), output, "--force"])
        runpy.run_path(script, run_name="__main__")
        models.append(Elmo(output))
    first, same, other, replaced = (
        torch.cat([p.flatten() for p in each.parameters()]) for each in models
    )
    assert torch.equal(first, same) and torch.equal(first, replaced)
    assert not torch.equal(first, other)


def test_random_elmo_is_whole_or_not_at_all(
    tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_weights(*arguments: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(
        "allennlp_elmo_plugin.bilm.checkpoints.weights.write_weights", write_weights
    )
    script = str(repository_root / "scripts" / "random_elmo.py")
    with find_model("tiny") as tiny:
        monkeypatch.setattr(sys, "argv", [script, str(tiny.options), f"{tmp_path}/elmo"])
        with pytest.raises(SystemExit, match="full"):
            runpy.run_path(script, run_name="__main__")
    assert not (tmp_path / "elmo").exists()
