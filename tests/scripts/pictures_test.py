import runpy
from pathlib import Path
from typing import Any, Dict

import pytest


@pytest.fixture(scope="module")
def script(repository_root: Path) -> Dict[str, Any]:
    pytest.importorskip("matplotlib")
    return runpy.run_path(str(repository_root / "scripts" / "pictures.py"))


def test_scores_of_tasks(script: Dict[str, Any], repository_root: Path, tmp_path: Path) -> None:
    """The numbers of docs/results.md are those of the picture in the documentation."""
    results = (repository_root / "docs" / "results.md").read_text(encoding="utf-8")
    tasks = script["read_tasks"](results)
    assert [task.name for task in tasks] == ["Wikigold NER", "WNUT-17 NER", "SST-5"]
    for task in tasks:
        assert list(task.models) == ["baseline", "word vectors", "+ ELMo"]
    script["draw_tasks"](tasks, tmp_path / "tasks.svg")
    drawn = (repository_root / "docs" / "pictures" / "tasks.svg").read_text(encoding="utf-8")
    for text in ((tmp_path / "tasks.svg").read_text(encoding="utf-8"), drawn):
        for task in tasks:
            for mean, _ in task.models.values():
                assert f"<!-- {mean:.1f} -->" in text
