"""`allennlp elmo-perplexity`; elmo_train_test.py compares it with validation."""

import csv
import html
import math
import re
from pathlib import Path

import pytest

from allennlp_elmo_plugin.plugin.components import BidirectionalLanguageModelPredictor
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.training import LanguageModel, TextBatches, evaluate
from tests.commands.elmo_export_test import save_run
from tests.support.bilm_tf import OPTIONS
from tests.support.testing import refused

TEXT = ['the " cat', "", "cat neverseen", "the the the the"]


def read_table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, dialect="excel-tab"))


@pytest.fixture
def predictor(run):
    Path("text").write_text("\n".join(TEXT), encoding="utf-8")
    model = save_run(Path("run"), OPTIONS["characters"])
    return BidirectionalLanguageModelPredictor(model.eval(), None)


def test_scores_are_those_that_predict_computes(predictor, run):
    printed = run("elmo-perplexity run text --scores scores.tsv")
    assert printed == "4 sentences. Written to scores.tsv\n"
    rows = read_table("scores.tsv")
    assert [row["text"] for row in rows] == TEXT
    run("elmo-perplexity run text --scores words.tsv --words")
    by_word = read_table("words.tsv")
    assert [(row["sentence"], row["word"]) for row in by_word] == [
        (str(number), word) for number, line in enumerate(TEXT) for word in line.split()
    ]
    for number, (row, line) in enumerate(zip(rows, TEXT)):
        expected = predictor.predict_json({"sentence": line})
        assert int(row["words"]) == len(line.split())
        assert int(row["unknown"]) == len(expected["unknown"])
        assert float(row["perplexity"]) == pytest.approx(expected["perplexity"], rel=1e-5)
        total = 0.0
        own = [row for row in by_word if row["sentence"] == str(number)]
        for direction, places in (("forward", slice(None, -1)), ("backward", slice(1, None))):
            name = f"{direction}_log_probabilit"
            assert float(row[f"{name}y"]) == pytest.approx(expected[f"{name}y"], rel=1e-5)
            total += expected[f"{name}y"] / 2
            of_words = [float(word[f"{name}y"]) for word in own]
            assert of_words == pytest.approx(expected[f"{name}ies"][places], rel=1e-5)
        assert float(row["log_probability"]) == pytest.approx(total, rel=1e-5)
        for word in own:
            perplexity = math.exp(-float(word["log_probability"]))
            assert float(word["perplexity"]) == pytest.approx(perplexity, rel=1e-4)


def test_the_words_have_the_perplexities_that_surprise_shows(predictor, run):
    run("elmo-perplexity run text --scores words.tsv --words")
    run("elmo-plot surprise run text --output surprise.html")
    page = Path("surprise.html").read_text("utf-8")
    shown = re.findall('mean 1 in ([^ ]+)".*?>(.*?)</span>', page)
    rows = read_table("words.tsv")
    assert [html.unescape(word) for _, word in shown] == [row["word"] for row in rows]
    expected = [float(row["perplexity"]) for row in rows]
    assert [float(n.replace(",", "")) for n, _ in shown] == pytest.approx(expected, rel=1e-3)


def test_batch_size(run, capsys):
    save_run(Path("run"), OPTIONS["characters"])
    Path("text").write_text("\n".join(TEXT * 3), encoding="utf-8")
    printed = run("elmo-perplexity run text --batch-size 2")
    model = read_pretrained("run")
    trained = LanguageModel(model.options.to_dict(), model.words, pretrained=model, num_samples=0)
    expected = evaluate(trained, TextBatches("text", model.words, 2, drop_last=False))
    assert f" {expected['perplexity']:,.2f}\n" in printed
    assert printed.split()[-2:] == ["batch_size", "2"]
    assert run("elmo-perplexity --batch-size 2 text --model run") == printed
    for line, message in (
        ("--words", "--words needs --scores FILE"),
        ("--batch-size 0", "0 is less than 1"),
        ("--batch-size 2 --scores a.tsv", "leave it out"),
    ):
        assert message in refused(capsys, *f"elmo-perplexity run text {line}".split())
