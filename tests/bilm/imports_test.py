"""The language model is plain torch: neither it nor what it imports of ours needs AllenNLP."""

import re
from pathlib import Path

IMPORT = re.compile(r"^ *(?:from|import) (allennlp\S*)", re.MULTILINE)
OURS = "allennlp_elmo_plugin.(?:files|errors|progress|registration"
ALLOWED = {
    "files": rf"{OURS})\b",
    "bilm": rf"{OURS}|bilm)\b",
    "modules/elmo_[bc]*": rf"{OURS}|bilm|modules)\b",
    "modules": rf"allennlp\b|{OURS}|bilm|modules)\b",
}


def test_imports_come_from_below_and_not_from_allennlp(repository_root: Path) -> None:
    for pattern, allowed in ALLOWED.items():
        for place in (repository_root / "allennlp_elmo_plugin").glob(pattern):
            for file in [place] if place.is_file() else place.rglob("*.py"):
                for name in IMPORT.findall(file.read_text(encoding="utf-8")):
                    assert re.match(allowed, name), (file, name)
