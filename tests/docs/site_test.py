import re

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.conftest import REPOSITORY_ROOT as ROOT


@pytest.mark.nightly
def test_the_site_is_built_and_needs_no_other_host(tmp_path):
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    for name in ("index", "api", "training_config/squad/bidaf_elmo.jsonnet"):
        text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert 'iframe-worker.js"' in text  # Search works in a folder.
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=.?(?:https?:)?//", text)
    index = (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = {")
