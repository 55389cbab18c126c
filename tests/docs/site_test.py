import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.conftest import REPOSITORY_ROOT as ROOT


@pytest.mark.nightly
def test_the_site_has_all_pages_and_needs_no_other_host(tmp_path: Path) -> None:
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=.?(?:https?:)?//", text), path
    # The README, and files outside of docs/ to which a page links.
    assert "Five things to do" in pages[tmp_path / "index.html"]
    assert tmp_path / "training_config/squad/bidaf_elmo.jsonnet.html" in pages
    assert "data:image/png" in pages[tmp_path / "notebooks/two_senses_of_a_word.ipynb.html"]
    assert "<code>initial_state</code>" in pages[tmp_path / "api.html"]  # an item of a list
