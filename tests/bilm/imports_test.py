"""The language model is plain torch: neither it nor what it imports of ours needs AllenNLP."""

import re
from pathlib import Path

IMPORT = re.compile(r"^ *(?:from|import) (allennlp\S*)", re.MULTILINE)
BELOW = ("bilm", "files", "modules", "errors", "progress", "registration")


def test_imports_come_from_below_and_not_from_allennlp(repository_root: Path) -> None:
    package = repository_root / "allennlp_elmo_plugin"
    for folder in ("files", "bilm", "modules"):
        allowed = BELOW if folder == "modules" else [each for each in BELOW if each != "modules"]
        for file in (package / folder).rglob("*.py"):
            for name in IMPORT.findall(file.read_text(encoding="utf-8")):
                if name.startswith(package.name):
                    assert name.split(".")[1] in allowed, (file, name)
                else:
                    assert folder == "modules", (file, name)
    for name in ("elmo_bilm", "elmo_character_encoder"):
        text = (package / "modules" / f"{name}.py").read_text(encoding="utf-8")
        assert all(each.startswith(package.name) for each in IMPORT.findall(text))
