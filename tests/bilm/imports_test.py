"""The language model is plain torch: neither it nor what it imports of ours needs AllenNLP."""

import ast
from pathlib import Path
from typing import Set

import pytest

PACKAGE = "allennlp_elmo_plugin"


def _imports(file: Path) -> Set[str]:
    found: Set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_nothing_of_allennlp(repository_root: Path) -> None:
    pending = list((repository_root / PACKAGE / "bilm").rglob("*.py"))
    seen: Set[Path] = set()
    while pending:
        file = pending.pop()
        seen.add(file)
        imports = _imports(file)
        assert not {name for name in imports if name.split(".")[0] == "allennlp"}, file
        for name in imports:
            if name.startswith(f"{PACKAGE}."):
                imported = repository_root.joinpath(*name.split(".")).with_suffix(".py")
                if imported.is_file() and imported not in seen:
                    pending.append(imported)
    assert repository_root / PACKAGE / "files" / "whole.py" in seen


@pytest.mark.parametrize("name", ["elmo_bilm", "elmo_character_encoder"])
def test_the_language_model_of_elmo_needs_no_allennlp_itself(
    name: str, repository_root: Path
) -> None:
    imports = _imports(repository_root / PACKAGE / "modules" / f"{name}.py")
    assert not {each for each in imports if each.split(".")[0] == "allennlp"}


def test_modules_import_from_below(repository_root: Path) -> None:
    for file in (repository_root / PACKAGE / "modules").glob("*.py"):
        for name in _imports(file):
            folders = name.split(".")
            if folders[0] == PACKAGE:
                assert folders[1] in ("bilm", "files", "modules", "registration"), (file, name)
