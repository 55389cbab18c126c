"""The documentation as a site builds without a warning; links in the repository lead somewhere."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import List
from urllib.parse import urldefrag

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    # With --quiet, warnings would not be errors.
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_all_pages_are_made(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
    # README.md, and a file outside of docs/ to which a page links.
    assert "Five things to do" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "training_config/srl/srl.jsonnet.html").exists()


def test_links_have_the_titles_of_pages(site: Path) -> None:
    for page in site.glob("*.html"):
        assert not re.findall(r">[\w./]+\.md</a>", page.read_text(encoding="utf-8")), page


def test_docstrings_do_not_disturb_the_contents(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h\d[^>]*>(.*?)</h\d>", page, re.DOTALL)
    assert any("ElmoEmbedder" in heading for heading in headings)
    assert not any(re.search("Parameters|Returns|Raises", heading) for heading in headings)
    assert "# Parameters" not in page
    assert "<code>initial_state</code>" in page


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=.?(?:https?:)?//", text), page


def links(text: str) -> List[str]:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(text: str) -> List[str]:
    """Return the anchors that a repository's browser gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize(
    "file", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda file: file.name
)
def test_links_in_the_repository(file: Path) -> None:
    for link in links(file.read_text(encoding="utf-8")):
        target, anchor = urldefrag(link)
        if "://" in target:
            continue
        found = file.parent / target if target else file
        assert found.exists(), link
        assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), link


def test_a_notebook() -> None:
    pytest.importorskip("mkdocs")
    page = runpy.run_path(str(ROOT / "scripts/site/repository_pages.py"))["notebook_text"]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text."]},
        {
            "cell_type": "code",
            "source": ["f()\n", "g()"],
            "outputs": [
                {"output_type": "stream", "text": ["printed\n"]},
                {"output_type": "execute_result", "data": {"text/plain": ["1"]}},
                {"output_type": "display_data", "data": {"image/png": "iVBORw0=\n"}},
            ],
        },
    ]
    assert page(json.dumps({"cells": cells})).split("\n\n") == [
        "# Title\nText.",
        "~~~~python\nf()\ng()\n~~~~",
        "~~~~text\nprinted\n~~~~",
        "~~~~text\n1\n~~~~",
        "![](data:image/png;base64,iVBORw0=)",
    ]


def test_sections_of_docstrings() -> None:
    pytest.importorskip("griffe")
    with_lists = runpy.run_path(str(ROOT / "scripts/site/docstrings.py"))["with_lists"]
    docstring = """\
Do it.

```
# Parameters
```

# Parameters

first : `int`, optional (default = `0`)
second : `str`
    What it is.

    And more.
third
    The last.

# Raises

`ValueError` if it can't be done."""
    lines = [line for line in with_lists(docstring).splitlines() if line]
    assert lines == [
        "Do it.",
        *("```", "# Parameters", "```"),
        "**Parameters**",
        "- **`first`** : `int`, optional (default = `0`)  ",
        "- **`second`** : `str`  ",
        "    What it is.",
        "    And more.",
        "- **`third`**  ",
        "    The last.",
        "**Raises**",
        "`ValueError` if it can't be done.",
    ]
