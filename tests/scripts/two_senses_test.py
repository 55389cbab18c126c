import runpy
import sys
from pathlib import Path

import pytest


def test_two_senses(tmp_path: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    script = str(repository_root / "scripts" / "two_senses.py")
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "two_senses.svg")])
    runpy.run_path(script, run_name="__main__")
    picture = (tmp_path / "two_senses.svg").read_text(encoding="utf-8")
    assert "<!-- She saw the play at the theatre . -->" in picture
