import runpy
import sys
from pathlib import Path

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
        with pytest.raises(ValueError, match="c is not empty; .* --force"):
            runpy.run_path(script, run_name="__main__")
        monkeypatch.setattr(sys, "argv", [script, str(options), output, "--force"])
        runpy.run_path(script, run_name="__main__")
        models.append(Elmo(output))
    first, same, other, replaced = (
        torch.cat([p.flatten() for p in each.parameters()]) for each in models
    )
    assert torch.equal(first, same) and torch.equal(first, replaced)
    assert not torch.equal(first, other)
