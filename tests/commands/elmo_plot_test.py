"""`allennlp elmo-plot`; tests/analysis has what it draws."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from allennlp_elmo_plugin.analysis.surprise import write_surprise
from allennlp_elmo_plugin.commands import elmo_plot
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.analysis.word_map_test import TEXT
from tests.commands.elmo_export_test import save_run
from tests.support.bilm_tf import OPTIONS
from tests.support.testing import refused, write_random_elmo


@pytest.fixture(autouse=True)
def folder(run):
    lines = [" ".join(words) for words in TEXT]
    Path("text").write_text("\n".join(lines), encoding="utf-8")
    labelled = "\n\n".join(f"sense {i % 2}\t{line}" for i, line in enumerate(lines))
    Path("labels").write_text(labelled, encoding="utf-8")
    Path("run").mkdir()
    write_random_elmo("elmo")
    metrics = {"training_perplexity": 50.0, "validation_perplexity": 40.0}
    Path("run/metrics_epoch_0.json").write_text(json.dumps(metrics), encoding="utf-8")


def test_map(run, capsys):
    pytest.importorskip("plotly")
    options = "--options-file elmo -o map.HTML"
    shown = r"bank: 8 of 10 occurrences, drawn at random; \d groups?. Written to map.HTML\n"
    assert re.fullmatch(shown, run(f"elmo-plot map bank text {options} --max-occurrences 8"))
    assert "; 3 groups. Written" in run(f"elmo-plot map bank text {options} --groups 3")
    message = refused(capsys, *f"elmo-plot map bank text {options} --labels -q".split())
    assert "text, line 1: with --labels, a line is LABEL, a tab and the sentence" in message
    printed = run(f"elmo-plot map bank labels {options} --labels --method tsne")
    assert printed == "bank: 10 occurrences; 2 groups. Written to map.HTML\n"
    page = Path("map.HTML").read_text(encoding="utf-8")
    assert '"sense 0 (5)"' in page and "(t-SNE)" in page
    printed = run(f"elmo-plot map bank text {options[:-8]}map.svg --max-occurrences 8")
    assert "Written to map.svg" in printed and "<svg" in Path("map.svg").read_text("utf-8")


def test_curves(run, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    assert run("elmo-plot curves run --output a.svg") == "1 run. Written to a.svg\n"
    shutil.copytree("run", "b/run")
    assert run("elmo-plot curves run b/run -o a.svg") == "2 runs. Written to a.svg\n"
    assert "b/run validation 40" in Path("a.svg").read_text(encoding="utf-8")
    for plot, package in (("curves run", "matplotlib"), ("map bank text", "scikit-learn")):
        monkeypatch.setitem(sys.modules, package.replace("scikit-", "sk"), None)
        line = f"elmo-plot {plot} -o a.svg"
        assert f"{package}: pip install" in refused(capsys, *line.split())


def test_surprise(run, monkeypatch):
    save_run(Path("run"), OPTIONS["characters"])
    monkeypatch.setattr(elmo_plot, "MAX_SENTENCES", 4)
    source = "run on 4 sentences of labels, text"
    Path("labels").write_text("\nbank\n", encoding="utf-8")
    expected = write_surprise(read_pretrained("run"), [["bank"], *TEXT[:3]], "b.html", source)
    values = ", ".join(f"{name} {value:.2f}" for name, value in expected.items())
    assert run("elmo-plot surprise run labels text -o a.html") == (
        f"4 sentences, perplexity: {values}. Written to a.html\n"
    )
    assert Path("a.html").read_text("utf-8") == Path("b.html").read_text("utf-8")
