"""The page docs/browser.md, in a browser: ELMo by WebAssembly."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from allennlp_elmo_plugin import ElmoEmbedder
from tests.conftest import REPOSITORY_ROOT as ROOT
from tests.support.browser import browser

SENTENCES = [["The", "children", "play", "near", "Zürich", "."], ["東京"], ["x" * 60, "it's"]]
VECTORS = """
    const embed = await (window.embed ??= import("/browser/elmo.js")
      .then((module) => module.loadElmo("browser/tiny.onnx", 1, () => {})));
    const vector = await embed(arguments[0]);
    return arguments[0].map((_, i) => [0, 1, 2].map((layer) => [...vector(layer, i)]));
"""
USES = "return [...document.querySelectorAll('#elmo-uses b')].map((each) => each.textContent)"
DOTS = "return document.querySelectorAll('#elmo-map g').length"
TYPE = """
    const text = document.getElementById("elmo-text");
    text.value = arguments[0];
    text.dispatchEvent(new Event("input"));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    if not Path(folder, "browser", "ort.wasm.min.mjs").exists():
        pytest.skip("needs npm, for onnxruntime-web")
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("width", [390, 1280])
def test_words_have_the_vectors_of_the_embedder_and_uses_their_places(width, site):
    emulated = {"deviceMetrics": {"width": width, "height": 844, "pixelRatio": 2}}
    with browser(site, mobileEmulation=emulated) as page:
        page.open("browser.html")
        uses = page.wait(f"const uses = (() => {{ {USES} }})(); return uses.length && uses")
        assert len(uses) == page.run(DOTS) == 10
        # The text begins with uses of "bank", one of the river, then one of money.
        assert uses[0] == "1" and {int(line) % 2 for line in uses[:3]} == {1}
        assert page.run("return document.documentElement.scrollWidth") <= width
        page.run("document.querySelector('#elmo-uses li:last-child button').click()")
        page.wait(f"return (() => {{ {USES} }})()[0] === arguments[0]", uses[-1])
        page.run(TYPE, "A cat sat .\nThe cat !\nno\nthis Cat")
        page.wait("return document.getElementById('elmo-status').textContent.includes('“cat”')")
        assert sorted(page.run(USES)) == ["1", "2", "4"] and page.run(DOTS) == 3
        page.run(TYPE, "Nothing twice")
        page.wait("return document.getElementById('elmo-status').textContent.startsWith('Write')")
        embedder = ElmoEmbedder("tiny")
        for words in SENTENCES:
            actual = np.array(page.run(f"return (async () => {{ {VECTORS} }})()", words))
            expected = embedder.embed_sentence(words).transpose(1, 0, 2)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)
        assert page.errors() == []


@pytest.mark.nightly
def test_without_the_runtime_the_page_says_so(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "browser" / "tiny.onnx").unlink()
    with browser(tmp_path / "site") as page:
        page.open("browser.html")
        status = "document.getElementById('elmo-status').textContent"
        assert "tiny.onnx: 404" in page.wait(f"return {status}.includes('could not') && {status}")
