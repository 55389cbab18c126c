import math
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.plots import surprise
from allennlp_elmo_plugin.plots.surprise import Surprise, measure_surprise, write_surprise
from tests.models.bidirectional_lm_predictor_test import OPTIONS, make
from tests.plots.conftest import Open

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
    with pytest.raises(ConfigurationError, match="tiny: has no softmax.*model.tar.gz"):
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
    with pytest.raises(ConfigurationError, match="it: gives '.*' no finite probability"):
        measure_surprise(pretrained, TEXT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bits = [
        [[1.0, 13.5], [3.0, 0.0]],
        [[2.0, 4.0, 6.0], [4.0, 4.0, 0.0]],
        [[0.0] * 3, [0.0] * 3],
    ]
    unknown = [[False, False], [True, True, False], [False] * 3]
    perplexities = {"forward": 10.0, "backward": 40.0, "both": 20.0}
    found = Surprise(["forward", "backward"], TEXT, bits, unknown, perplexities)
    write_surprise(found, str(tmp_path / "a.html"), "a <text>", "a model", is_cut=True)
    return tmp_path / "a.html"


def test_the_page(path: Path, open_page: Open) -> None:
    page = open_page(path)
    words = page.locator("#text span")
    assert [each.inner_text() for each in words.all()] == [word for each in TEXT for word in each]
    assert page.inner_text("h1") == "Perplexity 20.0 (forward 10.0, backward 40.0)"
    assert "the first 3 sentences of a <text>" in page.inner_text("#source")

    def strength(number: int) -> float:
        color = words.nth(number).evaluate("each => getComputedStyle(each).backgroundColor")
        return float(color.rstrip(")").replace("/", ",").split(",")[-1])

    assert strength(0) == pytest.approx(0.85 * 2 / math.log2(10000), abs=0.01)
    page.get_by_label("forward").check()
    assert strength(1) == pytest.approx(0.85, abs=0.01)  # more than the scale has
    assert strength(5) == 0
    page.get_by_label("backward").check()
    assert strength(1) == 0

    assert not page.is_visible("#tip")
    words.nth(2).hover()
    rows = [row.split("\t") for row in page.inner_text("#tip table").split("\n")]
    assert rows == [
        ["forward", "1 in 4.0", "2.0 bits"],
        ["backward", "1 in 16.0", "4.0 bits"],
        ["mean", "1 in 8.0", "3.0 bits"],
    ]
    assert page.inner_text("#tip strong") == "<script>alert(1)</script>"
    assert "<UNK>" in page.inner_text("#tip")
    words.nth(0).focus()
    assert page.inner_text("#tip strong") == "the" and "<UNK>" not in page.inner_text("#tip")


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surprise, "MAX_SENTENCES", 2)
    assert surprise.first_sentences([["a"], [], ["b"], ["c"], ["d"]]) == [["a"], ["b"], ["c"]]
