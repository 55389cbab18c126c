import re
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
    assert [task.name for task in tasks] == [
        "Wikigold NER",
        "WNUT-17 NER",
        "CoNLL-2000 chunking",
        "constituency",
        "SRL (EWT PropBank)",
        "SNLI (counterfactual)",
        "SST-5",
        "XQuAD (English)",
        "coreference (LitBank), `tiny`",
        "IMDB, fine-tuned `tiny`",
    ]
    for task in tasks:
        assert list(task.models) == ["baseline", "word vectors", "+ ELMo"]
    script["draw_tasks"](tasks, tmp_path / "tasks.svg")
    drawn = (repository_root / "docs" / "pictures" / "tasks.svg").read_text(encoding="utf-8")
    for text in ((tmp_path / "tasks.svg").read_text(encoding="utf-8"), drawn):
        for task in tasks:
            for mean, _ in task.models.values():
                assert re.search(f"<!-- {mean:.3g}(.0)? -->", text)


def test_weights_of_layers(script: Dict[str, Any], repository_root: Path) -> None:
    """Each column of the table is a mix, and its numbers are those of the picture."""
    results = (repository_root / "docs" / "results.md").read_text(encoding="utf-8")
    drawn = repository_root / "docs" / "pictures" / "layer_weights.svg"
    text = drawn.read_text(encoding="utf-8")
    places = script["read_layer_weights"](results)
    assert set(places) <= {"input", "output"}
    for task, mix in (item for mixes in places.values() for item in mixes.items()):
        assert len(mix) == 3 and sum(mix) == pytest.approx(1, abs=0.016)  # three roundings
        assert f"<!-- {task} -->" in text
        assert all(re.search(f"<!-- {weight:.3g}0? -->", text) for weight in mix)
