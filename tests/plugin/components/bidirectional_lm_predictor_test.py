import json
import math
import sys
from pathlib import Path

import pytest
import torch
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.models import archive_model

from allennlp_elmo_plugin.elmo.elmo import batch_to_ids
from allennlp_elmo_plugin.plugin.components import BidirectionalLanguageModelPredictor
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from tests.commands.elmo_export_test import save_run
from tests.support.bilm_tf import OPTIONS as MODELS
from tests.support.bilm_tf import read_vocabulary

OPTIONS = {name: MODELS[name] for name in ("characters", "tokens", "forward only")}
OPTIONS["few characters"] = {
    **MODELS["characters"],
    "char_cnn": {**MODELS["characters"]["char_cnn"], "max_characters_per_token": 6},
}
SENTENCES = ["the cat", "a-word-that-nobody-knows 大阪 the", "", "the", "no no no no no no"]


def make(options, tmp_path):
    torch.manual_seed(3)
    vocab = read_vocabulary(tmp_path / "run" / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options)
    with torch.no_grad():
        model.softmax.bias.normal_()
    return BidirectionalLanguageModelPredictor(model, None), model


def brute_force(model, direction, words):
    """Compute each token's probability by itself, from all tokens before it in its direction."""
    vocabulary = model.vocab.get_token_to_index_vocabulary("lm_tokens")
    names = list(vocabulary)
    order = 1 if direction == "forward" else -1
    bounded = ["<S>", *words, "</S>"][::order]
    log_probabilities, likely = [], []
    for i, word in enumerate(bounded[1:], 1):
        tokens = torch.tensor([[vocabulary.get(token, 2) for token in bounded[:i]]])
        if model.options.char_cnn is not None:
            width = model.options.char_cnn.max_characters_per_token
            tokens = batch_to_ids([bounded[:i]])[..., :width]
            tokens[..., -1][tokens[..., -1] != 261] = 260
        with torch.no_grad():
            reverse = tokens if model.options.bidirectional else None
            top = model.bilm(tokens, tokens_reverse=reverse).layers[direction][-1][-1]
            logits = top @ model.softmax.weight.t() + model.softmax.bias
        log_probabilities.append(logits.log_softmax(0)[vocabulary.get(word, 2)].item())
        best = zip(*logits.softmax(0).topk(3))
        likely.append([(names[i], pytest.approx(p.item(), abs=1e-6)) for p, i in best])
    return log_probabilities[::order], likely[::order]


@pytest.mark.parametrize("name", OPTIONS)
def test_probabilities_are_those_of_brute_force(name, tmp_path):
    predictor, model = make(OPTIONS[name], tmp_path)
    outputs = predictor.predict_batch_json([{"sentence": text, "top_k": 3} for text in SENTENCES])
    assert outputs[1]["unknown"] == ["a-word-that-nobody-knows", "大阪"]
    for sentence, output in zip(SENTENCES, outputs):
        assert output["tokens"] == sentence.split()
        means = []
        for direction in model.options.directions:
            log_probabilities = output[f"{direction}_log_probabilities"]
            expected, likely = brute_force(model, direction, sentence.split())
            words = output[f"{direction}_likely_words"]
            assert [list(of_place.items()) for of_place in words] == likely
            assert log_probabilities == pytest.approx(expected, abs=2e-6)
            assert output[f"{direction}_log_probability"] == pytest.approx(sum(log_probabilities))
            means.append(sum(log_probabilities) / len(log_probabilities))
            assert output[f"{direction}_perplexity"] == pytest.approx(math.exp(-means[-1]))
        assert output["perplexity"] == pytest.approx(math.exp(-sum(means) / len(means)))
        assert ("backward_perplexity" in output) == model.options.bidirectional


def test_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = save_run(Path("run"), OPTIONS["characters"])
    predictor = BidirectionalLanguageModelPredictor(model, None)
    archive_model("run")
    sentences = ['{"sentence": ""}', "the naïve cat"]
    Path("in.txt").write_text("\n".join(sentences) + "\n\n", encoding="utf-8")
    line = "allennlp predict run/model.tar.gz in.txt --output-file out.txt --silent --batch-size 8"
    monkeypatch.setattr(sys, "argv", [*line.split(), "--predictor-args", '{"plain_text": true}'])
    main()
    written = map(json.loads, Path("out.txt").read_text("utf-8").splitlines())
    for output, sentence in zip(written, sentences, strict=True):
        expected = predictor.predict(sentence)
        assert output.keys() == expected.keys()  # without likely words
        assert output["tokens"] == expected["tokens"] == sentence.split()
        assert output["perplexity"] == pytest.approx(expected["perplexity"])


def test_lines(tmp_path):
    predictor, model = make(OPTIONS["tokens"], tmp_path)

    def tokens(line):
        return predictor.predict_json(predictor.load_line(line))["tokens"]

    # Only ASCII white space separates words.
    assert tokens("\u00a0the\tcat \u3000\r\n") == ["\u00a0the", "cat", "\u3000"]
    assert tokens("\u00a0{ the\n") == ["\u00a0{", "the"]
    assert tokens(' {"tokens": ["a b", "c"]}\n') == ["a b", "c"]
    for wrong in ("false", 0.5):
        with pytest.raises(ConfigurationError, match=f"plain_text is {wrong!r}; it must be"):
            BidirectionalLanguageModelPredictor(model, None, plain_text=wrong)
    predictor.plain_text = False
    for line in (
        *("{", '{"sentence": ' + "9" * 10_000 + "}", "{\x1b" * 999, "the", "{}", '["the"]'),
        *('{"sentence": 3}', '{"tokens": "the cat"}', '{"tokens": ["the", 3]}'),
    ):
        with pytest.raises(ConfigurationError, match="is not a sentence: a line is its") as error:
            tokens(line)
        assert str(error.value).isprintable() and len(str(error.value)) < 500
    for top_k in (0, -1, 2.5, "3"):
        with pytest.raises(ConfigurationError, match=f"top_k is {top_k!r}; use a whole number"):
            predictor.predict_json({"sentence": "the", "top_k": top_k})
    for top_k, n_words in ((1, 1), (99, 50)):
        output = predictor.predict_json({"sentence": "", "top_k": top_k})
        assert len(output["forward_likely_words"][0]) == n_words
    # A perplexity that no float can hold
    with torch.no_grad():
        model.softmax.bias[3] = 1e6
    assert predictor.predict("no")["perplexity"] == math.inf
