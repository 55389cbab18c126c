"""`allennlp elmo-plot`; tests/plots has what it draws."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from allennlp_elmo_plugin.commands import elmo_plot
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.plots.surprise import write_surprise
from tests.models.bidirectional_lm_predictor_test import OPTIONS, make
from tests.plots.word_map_test import TEXT
from tests.support.testing import refused, write_random_elmo


@pytest.fixture(autouse=True)
def folder(run: Any) -> None:
    lines = [" ".join(words) for words in TEXT]
    Path("text.txt").write_text("\n".join(lines), encoding="utf-8")
    labelled = [f"sense {i % 2}\t{each}" for i, each in enumerate(lines)]
    Path("labels.tsv").write_text("\n\n".join(labelled), encoding="utf-8")
    for name in ("elmo", "run"):
        Path(name).mkdir()
    write_random_elmo("elmo")
    metrics = {"training_perplexity": 50.0, "validation_perplexity": 40.0}
    Path("run/metrics_epoch_0.json").write_text(json.dumps(metrics), encoding="utf-8")


def test_map(run: Any) -> None:
    pytest.importorskip("plotly")
    line = "elmo-plot map bank text.txt --options-file elmo -o map.html"
    shown = r"bank: 8 of 10 occurrences, drawn at random; \d groups?. Written to map.html\n"
    assert re.fullmatch(shown, run(f"{line} --max-occurrences 8"))
    assert "; 3 groups. Written" in run(f"{line} --groups 3")
    printed = run(f"{line.replace('text.txt', 'labels.tsv')} --labels --method tsne")
    assert printed == "bank: 10 occurrences; 2 groups. Written to map.html\n"
    page = Path("map.html").read_text(encoding="utf-8")
    assert '"sense 0 (5)"' in page and "vectors in elmo are near each other (t-SNE)" in page


def test_curves(run: Any) -> None:
    pytest.importorskip("matplotlib")
    assert run("elmo-plot curves run --output a.svg") == "1 run. Written to a.svg\n"
    assert "run validation 40" in Path("a.svg").read_text(encoding="utf-8")
    shutil.copytree("run", "b/run")
    assert run("elmo-plot curves run b/run -o ab.svg") == "2 runs. Written to ab.svg\n"
    assert "b/run validation 40" in Path("ab.svg").read_text(encoding="utf-8")


def test_surprise(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, model = make(OPTIONS["characters"], tmp_path)
    model.vocab.save_to_files("run/vocabulary")
    options = {"type": "bidirectional_lm", "options": OPTIONS["characters"]}
    config = {"dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4}, "model": options}
    Path("run/config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), "run/best.th")
    monkeypatch.setattr(elmo_plot, "MAX_SENTENCES", 4)
    model, cpu = read_pretrained("run"), torch.device("cpu")
    found = write_surprise(model, TEXT[:4], "b.html", "title", cpu)
    values = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    assert run("elmo-plot surprise run text.txt -o a.html") == (
        f"4 sentences, perplexity: {values}. Written to a.html\n"
    )
    assert "4 sentences of text.txt" in Path("a.html").read_text(encoding="utf-8")
    for name in "abcd":
        Path(f"{name}.txt").write_text("bank\n", encoding="utf-8")
    printed = run("elmo-plot surprise run a.txt b.txt c.txt d.txt -o b.html")
    assert printed.startswith("4 sentences, perplexity: forward ")
    source = "run on 4 sentences of a.txt, b.txt, c.txt, d.txt"
    assert source in Path("b.html").read_text(encoding="utf-8")


def test_a_missing_package(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, line in (
        ("plotly", "elmo-plot map bank text.txt -o a.html"),
        ("matplotlib", "elmo-plot curves run -o a.svg"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        assert refused(capsys, *line.split()) == (
            f"error: this plot needs {package}: pip install 'allennlp_elmo_plugin[plot]'\n"
        )
