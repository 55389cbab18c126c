"""The command. tests/plots has what it draws."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands import main
from allennlp.models import archive_model

from allennlp_elmo_plugin.commands import elmo_plot
from tests.models.bidirectional_lm_predictor_test import OPTIONS, make
from tests.plots.word_map_test import TEXT
from tests.support.testing import refused, write_random_elmo


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [" ".join(words) for words in TEXT]
    Path("text.txt").write_text("\n".join(lines), encoding="utf-8")
    labelled = [f"sense {i % 2}\t{each}" for i, each in enumerate(lines)]
    Path("labels.tsv").write_text("\n".join(labelled), encoding="utf-8")
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    Path("run").mkdir()
    metrics = {"training_perplexity": 50.0, "validation_perplexity": 40.0}
    Path("run/metrics_epoch_0.json").write_text(json.dumps(metrics), encoding="utf-8")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, capsys: Any, *given: str) -> str:
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-plot", *given])
    main()
    return capsys.readouterr().out


def test_map(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("plotly")
    given = ["map", "bank", "text.txt", "--options-file", "elmo", "--max-occurrences", "8"]
    printed = run(monkeypatch, capsys, *given, "-o", "map.html", "--quiet")
    assert printed.startswith("bank: 8 of 10 occurrences, drawn at random; ")
    assert printed.endswith(" groups. Written to map.html\n")
    printed = run(monkeypatch, capsys, *given, "-o", "map.html", "--quiet", "--groups", "3")
    assert "; 3 groups. Written" in printed
    given = ["map", "bank", "labels.tsv", "--labels", "--options-file", "elmo", "-o", "map.html"]
    printed = run(monkeypatch, capsys, *given, "--method", "tsne", "-q")
    assert printed == "bank: 10 occurrences; 2 groups. Written to map.html\n"
    page = Path("map.html").read_text(encoding="utf-8")
    assert '"sense 0 (5)"' in page and "vectors in elmo are near each other (t-SNE)" in page


def test_curves(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    printed = run(monkeypatch, capsys, "curves", "run", "run/", "--output", "curves.svg", "-q")
    assert printed == "2 runs. Written to curves.svg\n"
    assert Path("curves.svg").stat().st_size > 1000
    for folder in ("a/small/run", "b/small/run"):
        shutil.copytree("run", folder)
    run(monkeypatch, capsys, "curves", "a/small/run", "b/small/run", "-o", "curves.svg", "-q")
    text = Path("curves.svg").read_text(encoding="utf-8")
    assert "a/small/run validation 40" in text and "b/small/run validation 40" in text


def test_surprise(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _, model = make(OPTIONS["characters"], folder)
    model.vocab.save_to_files("run/vocabulary")
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "options": OPTIONS["characters"]},
    }
    Path("run/config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), "run/best.th")
    archive_model("run")
    monkeypatch.setattr(elmo_plot, "MAX_SENTENCES", 4)
    for source in ("run", "run/model.tar.gz"):
        given = ["surprise", source, "text.txt", "-o", "surprise.html", "-q"]
        printed = run(monkeypatch, capsys, *given)
        assert re.fullmatch(
            r"the first 4 sentences, perplexity: forward [\d.]+, backward [\d.]+, both [\d.]+. "
            r"Written to surprise.html\n",
            printed,
        )
    Path("short.txt").write_text("bank\n", encoding="utf-8")
    printed = run(monkeypatch, capsys, "surprise", "run", "short.txt", "-o", "short.html", "-q")
    assert printed.startswith("1 sentence, perplexity: forward")
    assert "run on 1 sentence of short.txt" in Path("short.html").read_text(encoding="utf-8")
    files = [shutil.copy("short.txt", f"{name}.txt") for name in "abcd"]
    run(monkeypatch, capsys, "surprise", "run", *files, "-o", "many.html", "-q")
    source = "run on 4 sentences of a.txt, b.txt, c.txt and 1 more"
    assert source in Path("many.html").read_text(encoding="utf-8")
    page = Path("surprise.html").read_text(encoding="utf-8")
    assert "the first 4 sentences of text.txt" in page


def test_mistakes(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, message in [
        ([], "the following arguments are required: PLOT"),
        (["pie"], "invalid choice: 'pie'"),
        (["curves", "run"], "the following arguments are required: -o/--output"),
        (["curves", "run", "-o", "a.gif"], "must end with .svg, .png, .pdf"),
        (["curves", "elmo", "-o", "a.svg"], "elmo: not the folder of a language model's"),
        (["curves", "run", "-o", "missing/a.svg"], "missing: there is no such folder"),
        (["curves", "run", "-o", "a.svg", "--log"], "unrecognized arguments: --log"),
        (["map", "bank", "text.txt", "-o", "a.png"], "the name must end with .html"),
        (["map", "shore", "text.txt", "-o", "a.html"], "'shore' is not in the text of"),
        (
            ["map", "bank", "text.txt", "--labels", "-o", "a.html"],
            "text.txt, line 1: with --labels",
        ),
        (["surprise", "elmo", "text.txt", "-o", "a.html", "-q"], "elmo: has no softmax"),
        (["surprise", "missing", "text.txt", "-o", "a.html"], "missing"),
    ]:
        assert message in refused(capsys, "elmo-plot", *given)
    assert not list(Path().glob("a.*"))
    # Before the work
    for output, message in [("missing/a.html", "no such folder"), ("folder.html", "is a folder")]:
        Path("folder.html").mkdir(exist_ok=True)
        for given in (["map", "bank"], ["surprise", "no model"]):
            assert message in refused(capsys, "elmo-plot", *given, "text.txt", "-o", output)
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    needed = "pip install 'allennlp_elmo_plugin[plot]'"
    assert needed in refused(capsys, "elmo-plot", "map", "bank", "text.txt", "-o", "a.html")
    assert needed in refused(capsys, "elmo-plot", "curves", "run", "-o", "a.svg")
