import json
import math
import sys

import pytest
import torch
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.models import archive_model

from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.bidirectional_lm_predictor import (
    BidirectionalLanguageModelPredictor,
)
from allennlp_elmo_plugin.modules.elmo import batch_to_ids
from tests.support.bilm_tf import CHAR_CNN, LSTM, read_vocabulary
from tests.support.bilm_tf import OPTIONS as MODELS

OPTIONS = {name: MODELS[name] for name in ("characters", "tokens", "forward only")}
OPTIONS["few characters"] = {
    "char_cnn": {**CHAR_CNN, "max_characters_per_token": 6},
    "lstm": LSTM,
    "sample_softmax": False,
}
SENTENCES = ["the cat", "a-word-that-nobody-knows 大阪 the", "", "the", "no no no no no no"]


def make(options, tmp_path):
    torch.manual_seed(3)
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options)
    with torch.no_grad():
        model.softmax.bias.normal_()
    return BidirectionalLanguageModelPredictor(model, None), model


def brute_force(model, words):
    """One token at a time, each with all that is before it in its direction from zero."""
    vocabulary = model.vocab.get_token_to_index_vocabulary("lm_tokens")

    def log_probability(direction, context, word):
        if model.options.char_cnn is None:
            tokens = torch.tensor([[vocabulary.get(each, 2) for each in context]])
        else:
            tokens = batch_to_ids([context])
            if model.options.char_cnn.max_characters_per_token == 6:
                tokens = tokens[..., :6]
                tokens[..., 5][tokens[..., 5] != 261] = 260
        with torch.no_grad():
            reverse = tokens if model.options.bidirectional else None
            layers = model.bilm(tokens, tokens_reverse=reverse).layers[direction]
            logits = layers[-1][-1] @ model.softmax.weight.t() + model.softmax.bias
        return logits.log_softmax(0)[vocabulary.get(word, 2)].item()

    found = {}
    for direction in model.options.directions:
        order = 1 if direction == "forward" else -1
        bounded = ["<S>", *words, "</S>"][::order]
        values = [
            log_probability(direction, bounded[:i], bounded[i]) for i in range(1, len(bounded))
        ]
        found[direction] = values[::order]
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_log_probabilities_are_those_of_brute_force(name, tmp_path):
    predictor, model = make(OPTIONS[name], tmp_path)
    outputs = predictor.predict_batch_json([{"sentence": each} for each in SENTENCES])
    assert outputs[1]["unknown"] == ["a-word-that-nobody-knows", "大阪"]
    for sentence, output in zip(SENTENCES, outputs):
        words = sentence.split()
        assert output["tokens"] == words
        means = []
        for direction, expected in brute_force(model, words).items():
            found = output[f"{direction}_log_probabilities"]
            assert len(found) == len(words) + 1
            assert found == pytest.approx(expected, abs=2e-6)
            assert output[f"{direction}_log_probability"] == pytest.approx(sum(found))
            means.append(sum(found) / len(found))
            assert output[f"{direction}_perplexity"] == pytest.approx(math.exp(-means[-1]))
        assert output["perplexity"] == pytest.approx(math.exp(-sum(means) / len(means)))
        assert ("backward_perplexity" in output) == model.options.bidirectional
        # Whatever else is in the batch.
        alone = predictor.predict_json({"tokens": words})
        for direction in model.options.directions:
            key = f"{direction}_log_probabilities"
            assert alone[key] == pytest.approx(output[key], abs=2e-6)
        assert predictor.predict(sentence) == alone


@pytest.mark.parametrize("plain_text", [False, True])
def test_command(plain_text, tmp_path, monkeypatch):
    predictor, model = make(OPTIONS["characters"], tmp_path)
    run = tmp_path / "run"
    model.vocab.save_to_files(str(run / "vocabulary"))
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "options": OPTIONS["characters"]},
    }
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), run / "best.th")
    archive_model(str(run))
    lines = ['{"not JSON', "the naïve cat"] if plain_text else ["", "the naïve cat"]
    text = "\n".join(lines if plain_text else [json.dumps({"sentence": each}) for each in lines])
    (tmp_path / "in.txt").write_text(text + "\n\n", encoding="utf-8")
    arguments = ["allennlp", "predict", str(run / "model.tar.gz"), str(tmp_path / "in.txt")]
    arguments += ["--output-file", str(tmp_path / "out.jsonl"), "--silent", "--batch-size", "8"]
    if plain_text:
        arguments += ["--predictor-args", '{"plain_text": true}']
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    expected = predictor.predict_batch_json([{"sentence": each} for each in lines])
    assert len(written) == 2
    for line, output in zip(written, expected):
        found = json.loads(line)
        assert found["tokens"] == output["tokens"]
        assert found["perplexity"] == pytest.approx(output["perplexity"])


def test_lines(tmp_path):
    predictor, model = make(OPTIONS["tokens"], tmp_path)

    def tokens(line):
        return predictor.predict_json(predictor.load_line(line))["tokens"]

    # Spaces other than those of ASCII are parts of words.
    assert tokens("\u00a0the\tcat \u3000\r\n") == ["\u00a0the", "cat", "\u3000"]
    assert tokens("\u00a0{ the\n") == ["\u00a0{", "the"]
    assert tokens(' {"tokens": ["a b", "c"]}\n') == ["a b", "c"]
    predictor.plain_text = True
    assert tokens('{"tokens": []}') == ['{"tokens":', "[]}"]
    predictor.plain_text = False
    for line in (
        *("{", '{"sentence": ' + "9" * 10_000 + "}", "{\x1b" * 999, "the", "{}", '["the"]'),
        *('{"sentence": 3}', '{"tokens": "the cat"}', '{"tokens": ["the", 3]}'),
    ):
        with pytest.raises(ConfigurationError, match="is not a sentence: a line is its") as error:
            tokens(line)
        assert str(error.value).isprintable() and len(str(error.value)) < 500
    (output,) = predictor.predict_batch_json([{"tokens": ["\x1b[31m", "a\0b", "\ud800"]}])
    assert len(output["unknown"]) == 3
    # Of a model that gives a word no chance at all.
    with torch.no_grad():
        model.softmax.bias[3] = 1e6
    assert predictor.predict("no")["perplexity"] == math.inf


def test_windows_are_not_sentences(tmp_path):
    predictor, _ = make(OPTIONS["characters"], tmp_path)
    for predict, argument in (
        (predictor.predict_instance, None),
        (predictor.predict_batch_instance, [None]),
    ):
        with pytest.raises(ConfigurationError, match="leave out --use-dataset-reader"):
            predict(argument)
