"""The documentation as a site; `make docs` builds it with warnings as errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
def test_the_site_has_all_pages_and_needs_no_other_host(tmp_path: Path) -> None:
    # With --quiet, warnings would not be errors.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=.?(?:https?:)?//", text), path
        assert not re.findall(r">[\w./]+\.md</a>", text), path  # Links have the titles of pages.
    for page in (ROOT / "docs").glob("*.md"):
        assert tmp_path / f"{page.stem}.html" in pages
    # The README, and files outside of docs/ to which a page links.
    assert "Five things to do" in pages[tmp_path / "index.html"]
    assert tmp_path / "training_config/squad/bidaf_elmo.jsonnet.html" in pages
    assert "data:image/png" in pages[tmp_path / "notebooks/two_senses_of_a_word.ipynb.html"]
    # Sections of docstrings are lists, whose headings are not among those of the page.
    api = pages[tmp_path / "api.html"]
    headings = re.findall(r"<h\d[^>]*>(.*?)</h\d>", api, re.DOTALL)
    assert any("ElmoEmbedder" in heading for heading in headings)
    assert not any(re.search("Parameters|Returns|Raises", heading) for heading in headings)
    assert "# Parameters" not in api
    assert "<code>initial_state</code>" in api
