import re
import runpy

import pytest


def test_pictures_have_the_numbers_of_the_tables(tmp_path, repository_root):
    """Those in docs/pictures are the ones that the script draws now."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("allennlp")
    script = runpy.run_path(str(repository_root / "scripts" / "pictures.py"))
    script["draw_results"](tmp_path)
    for picture in ("speed", "probes", "senses"):
        script[f"draw_{picture}"](tmp_path)
    for name in ("tasks", "layer_weights", "speed", "probes", "two_senses"):
        files = (folder / f"{name}.svg" for folder in (tmp_path, repository_root / "docs/pictures"))
        drawn, committed = (re.findall("<!-- (.*) -->", file.read_text("utf-8")) for file in files)
        assert drawn == committed and len(drawn) > 12
