import html
import math
import re
from pathlib import Path

import pytest
import torch

from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.plots import surprise
from allennlp_elmo_plugin.plots.surprise import Surprise, measure_surprise, write_surprise
from tests.models.bidirectional_lm_predictor_test import OPTIONS, make

TEXT = ["the cat".split(), "<script>alert(1)</script> 大阪 the".split(), "no no no".split()]


@pytest.mark.parametrize("name", ["characters", "forward only"])
def test_numbers_are_those_of_predict(name: str, tmp_path: Path) -> None:
    predictor, model = make(OPTIONS[name], tmp_path)
    words = list(model.vocab.get_token_to_index_vocabulary("lm_tokens"))
    pretrained = PretrainedLanguageModel("it", model.options, words, model.bilm, model.softmax)
    found = measure_surprise(pretrained, TEXT)
    assert found.directions == list(model.options.directions)
    logs = dict.fromkeys(found.directions, 0.0)
    for i, sentence in enumerate(TEXT):
        expected = predictor.predict_json({"tokens": sentence})
        assert [word for word, new in zip(sentence, found.unknown[i]) if new] == expected["unknown"]
        for direction, bits in zip(found.directions, found.bits[i]):
            values = expected[f"{direction}_log_probabilities"]
            logs[direction] += sum(values)
            values = values[:-1] if direction == "forward" else values[1:]
            assert bits == pytest.approx([-each / math.log(2) for each in values], abs=1e-4)
    n_predicted = sum(len(each) + 1 for each in TEXT)
    for direction, total in logs.items():
        assert found.perplexities[direction] == pytest.approx(math.exp(-total / n_predicted))
    assert ("both" in found.perplexities) == (len(logs) > 1)


def test_a_model_without_softmax(tmp_path: Path) -> None:
    _, model = make(OPTIONS["characters"], tmp_path)
    pretrained = PretrainedLanguageModel("tiny", model.options, None, model.bilm, None)
    with pytest.raises(ValueError, match="tiny: has no softmax.*model.tar.gz"):
        measure_surprise(pretrained, TEXT)


def test_a_model_without_finite_numbers(tmp_path: Path) -> None:
    _, model = make(OPTIONS["characters"], tmp_path)
    words = list(model.vocab.get_token_to_index_vocabulary("lm_tokens"))
    pretrained = PretrainedLanguageModel("it", model.options, words, model.bilm, model.softmax)
    with torch.no_grad():
        model.softmax.bias[0] = 1e5
    found = measure_surprise(pretrained, TEXT)
    assert found.perplexities["both"] == math.inf
    write_surprise(found, str(tmp_path / "a.html"), "a text", "a model", is_cut=False)
    with torch.no_grad():
        model.softmax.bias[0] = math.nan
    with pytest.raises(ValueError, match="it: gives '.*' no finite probability"):
        measure_surprise(pretrained, TEXT)


def test_the_page(tmp_path: Path) -> None:
    bits = [
        [[1.0, 30.0], [3.0, 0.0]],
        [[2.0, 4.0, 6.0], [4.0, 4.0, 0.0]],
        [[0.0] * 3, [0.0] * 3],
    ]
    unknown = [[False, False], [True, True, False], [False] * 3]
    perplexities = {"forward": 10.0, "backward": 40.0, "both": 20.0}
    found = Surprise(["forward", "backward"], TEXT, bits, unknown, perplexities)
    path = tmp_path / "a.html"
    write_surprise(found, str(path), "a <text>", "a model", is_cut=True)
    page = path.read_text(encoding="utf-8")
    assert "<h1>Perplexity: forward 10.0, backward 40.0, both 20.0</h1>" in page
    assert "<p>a model on the first 3 sentences of a &lt;text&gt;, 8 words</p>" in page
    assert page.count("<script>") == 0
    lines = re.findall("<p>(<span.*)</p>", page)
    spans = [
        re.findall(r'<span title="(.*?)" style="--bits: (.*?)"(.*?)>(.*?)</span>', x) for x in lines
    ]
    assert [[html.unescape(word) for *_, word in line] for line in spans] == TEXT
    assert [[bool(mark) for _, _, mark, _ in line] for line in spans] == unknown
    titles = [title for line in spans for title, *_ in line]
    assert titles[0] == "forward 1 in 2, backward 1 in 8, mean 1 in 4"
    assert titles[1] == "forward 1 in 1.074e+09, backward 1 in 1, mean 1 in 3.277e+04"
    strengths = [float(strength) for line in spans for _, strength, *_ in line]
    assert strengths[0] == pytest.approx(2 / math.log2(10000), abs=1e-3)
    assert strengths[1] == 1 and strengths[-1] == 0  # more than the scale has, and none

    one = found._replace(
        directions=["forward"], bits=[each[:1] for each in bits], perplexities={"forward": 10.0}
    )
    write_surprise(one, str(path), "a text", "a model", is_cut=False)
    page = path.read_text(encoding="utf-8")
    assert 'title="forward 1 in 2"' in page and "a text: 3 sentences, 8 words" in page


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surprise, "MAX_SENTENCES", 2)
    assert surprise.first_sentences([["a"], [], ["b"], ["c"], ["d"]]) == [["a"], ["b"], ["c"]]
