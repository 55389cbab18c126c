import html
import math
import re
from pathlib import Path

import pytest
import torch

from allennlp_elmo_plugin.analysis.surprise import write_surprise
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from tests.plugin.components.bidirectional_lm_predictor_test import OPTIONS, make

TEXT = ["the cat".split(), "<script>alert(1)</script> 大阪 the".split(), "no no no".split()]


def load(name, folder):
    """Return a predictor, and the same model."""
    predictor, model = make(OPTIONS[name], folder)
    words = list(model.vocab.get_token_to_index_vocabulary("lm_tokens"))
    return predictor, PretrainedLanguageModel("it", model.options, words, model.bilm, model.softmax)


@pytest.mark.parametrize("name", ["characters", "forward only"])
def test_words_have_the_surprise_that_predict_computes(name, tmp_path):
    predictor, pretrained = load(name, tmp_path)
    perplexities = write_surprise(pretrained, TEXT, str(tmp_path / "a.html"), "a <title>")

    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<p>a &lt;title&gt;</p>" in page and "<script>" not in page
    shown = ", ".join(f"{key} {value:,.1f}" for key, value in perplexities.items())
    assert f"<h1>Perplexity: {shown}</h1>" in page
    lines = re.findall("<p>(<span.*)</p>", page)
    logs = dict.fromkeys(pretrained.options.directions, 0.0)
    for sentence, line in zip(TEXT, lines, strict=True):
        expected = predictor.predict_json({"tokens": sentence})
        spans = re.findall('<span title="(.*?)" style="--bits: (.*?)"(.*?)>(.*?)</span>', line)
        assert [html.unescape(word) for *_, word in spans] == sentence
        marked = [html.unescape(word) for _, _, mark, word in spans if mark == " class=unknown"]
        assert marked == expected["unknown"]
        assert all((mark != "") == title.startswith("any unknown") for title, _, mark, _ in spans)
        of_words = []
        for direction in logs:
            values = expected[f"{direction}_log_probabilities"]
            logs[direction] += sum(values)
            of_words.append(values[:-1] if direction == "forward" else values[1:])
        for (title, strength, *_), *values in zip(spans, *of_words):
            means = [*values, sum(values) / len(values)]
            odds = [float(n.replace(",", "")) for n in re.findall("1 in ([^ ]+?)(?:, |$)", title)]
            assert odds == pytest.approx([math.exp(-mean) for mean in means], rel=1e-3)
            bits = -means[-1] / math.log(2)
            assert float(strength) == pytest.approx(min(1, bits / math.log2(10_000)), abs=1e-3)
    n_predicted = sum(len(sentence) + 1 for sentence in TEXT)
    losses = {direction: -total / n_predicted for direction, total in logs.items()}
    if len(losses) > 1:
        losses["both"] = sum(losses.values()) / 2
    assert perplexities == pytest.approx({key: math.exp(loss) for key, loss in losses.items()})


def test_a_figure_has_the_words_and_the_strength_of_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    _, pretrained = load("characters", tmp_path)
    text = [TEXT[0], "<script> the".split(), ["the"] * 60]
    for name in ("a.html", "a.svg"):
        assert write_surprise(pretrained, text, str(tmp_path / name), "a title")["both"] > 1
    page, figure = (tmp_path / name for name in ("a.html", "a.svg"))
    page, figure = page.read_text(encoding="utf-8"), figure.read_text(encoding="utf-8")
    drawn = [html.unescape(text) for text in re.findall("<!-- (.*) -->", figure)]
    assert drawn[0] == re.search("<h1>(.*)</h1>", page)[1] and drawn[1] == "a title"
    assert drawn[2:] == [word for sentence in text for word in sentence]
    strengths = re.findall('style="--bits: (.*?)"(.*?)>', page)
    expected = [0.0 if unknown else 0.85 * float(bits) for bits, unknown in strengths]
    opacities = re.findall('#d65e29; fill-opacity: (.*?)"', figure)
    assert list(map(float, opacities)) == pytest.approx([*filter(None, expected)], abs=1e-3)
    unknown = [word for word in drawn[2:] if word not in pretrained.words]
    assert figure.count("stroke: #7b8490") == len(unknown)


def test_models_that_cannot_predict_are_refused(tmp_path):
    _, pretrained = load("characters", tmp_path)
    path = str(tmp_path / "a.html")
    with pytest.raises(ValueError, match="it: has no softmax.* --from it --output my_elmo"):
        write_surprise(pretrained._replace(softmax=None), TEXT, path, "")
    with torch.no_grad():
        pretrained.softmax.bias[0] = 1e5
    assert write_surprise(pretrained, TEXT, path, "")["both"] == math.inf
    assert "--bits: 1.000" in Path(path).read_text(encoding="utf-8")
