import re
import runpy
from pathlib import Path

import pytest


def test_pictures_have_the_numbers_of_the_tables(tmp_path: Path, repository_root: Path) -> None:
    """Those that the documentation has are the ones that the script draws now."""
    pytest.importorskip("matplotlib")
    script = runpy.run_path(str(repository_root / "scripts" / "pictures.py"))
    script["draw_results"](tmp_path)
    numbers = {
        "tasks": [
            re.findall(r"[\d.]+", row[model])[0]
            for row in script["read_table"]("| task | score (test) |")
            for model in ("baseline", "word vectors", "+ ELMo")
        ],
        "layer_weights": [
            weight
            for row in script["read_table"]("| task | place of ELMo |")
            for weight in list(row.values())[2:]
        ],
    }
    assert len(numbers["tasks"]) >= 3 and len(numbers["layer_weights"]) >= 3
    for name, expected in numbers.items():
        for folder in (tmp_path, repository_root / "docs" / "pictures"):
            text = (folder / f"{name}.svg").read_text(encoding="utf-8")
            for number in expected:
                assert f"<!-- {float(number):.3g} -->" in text, (folder, number)

    script["draw_senses"](tmp_path)
    picture = (tmp_path / "two_senses.svg").read_text(encoding="utf-8")
    assert "<!-- She saw the play at the theatre . -->" in picture
