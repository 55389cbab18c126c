import json
import math
import sys

import pytest
import torch
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError
from allennlp.models import archive_model

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.bidirectional_lm_predictor import (
    BidirectionalLanguageModelPredictor,
)
from allennlp_elmo_plugin.modules.elmo import batch_to_ids
from tests.support.bilm_tf import read_vocabulary

LSTM = {"dim": 7, "projection_dim": 5, "n_layers": 2, "use_skip_connections": True}
CHAR_CNN = {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1}
OPTIONS = {
    "characters": {"char_cnn": CHAR_CNN, "lstm": LSTM, "dropout": 0.5},
    "tokens": {"lstm": LSTM},
    "forward only": {"char_cnn": CHAR_CNN, "lstm": LSTM, "bidirectional": False},
    "few characters": {"char_cnn": {**CHAR_CNN, "max_characters_per_token": 6}, "lstm": LSTM},
}
OPTIONS = {name: {**values, "sample_softmax": False} for name, values in OPTIONS.items()}
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
            width = model.options.char_cnn.max_characters_per_token
            assert width in (6, 50)
            if width == 6:
                tokens = tokens[..., :6]
                tokens[..., 5][tokens[..., 5] != 261] = 260
        with torch.no_grad():
            reverse = tokens if model.options.bidirectional else None
            layers = BiLm.forward(model.bilm, tokens, tokens_reverse=reverse).layers[direction]
            logits = layers[-1][-1] @ model.softmax.weight.t() + model.softmax.bias
        return logits.log_softmax(0)[vocabulary.get(word, 2)].item()

    found = {}
    for direction in model.options.directions:
        bounded = ["<S>", *words, "</S>"][:: 1 if direction == "forward" else -1]
        values = [
            log_probability(direction, bounded[:i], bounded[i]) for i in range(1, len(bounded))
        ]
        found[direction] = values[:: 1 if direction == "forward" else -1]
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


def test_other_spaces_are_parts_of_words(tmp_path):
    predictor, _ = make(OPTIONS["characters"], tmp_path)
    output = predictor.predict_json(predictor.load_line("\u00a0the\tcat \u3000\r\n"))
    assert output["tokens"] == ["\u00a0the", "cat", "\u3000"]
    assert predictor.load_line("\u00a0{ the\n") == {"sentence": "\u00a0{ the\n"}


class TestBadInput:
    @pytest.mark.parametrize("inputs", [{}, {"sentence": 3}, {"tokens": "the cat"}, ["the"]])
    def test_line_without_sentence(self, inputs, tmp_path):
        predictor, _ = make(OPTIONS["characters"], tmp_path)
        with pytest.raises(ConfigurationError, match="is not a sentence: a line is its words"):
            predictor.predict_json(inputs)

    def test_lines_of_a_stranger(self, tmp_path):
        predictor, model = make(OPTIONS["tokens"], tmp_path)
        for line in (
            "{",
            '{"sentence": ' + "9" * 10_000 + "}",
            "{\x1b" * 999,
        ):
            with pytest.raises(ConfigurationError, match="is not a sentence") as error:
                predictor.predict_json(predictor.load_line(line))
            assert str(error.value).isprintable() and len(str(error.value)) < 500
        (output,) = predictor.predict_batch_json([{"tokens": ["\x1b[31m", "a\0b", "\ud800"]}])
        assert len(output["unknown"]) == 3
        # Of a model that gives a word no chance at all.
        with torch.no_grad():
            model.softmax.bias[3] = 1e6
        assert predictor.predict("no")["perplexity"] == math.inf

    def test_windows_are_not_sentences(self, tmp_path):
        predictor, _ = make(OPTIONS["characters"], tmp_path)
        with pytest.raises(ConfigurationError, match="leave out --use-dataset-reader"):
            predictor.predict_batch_instance([None])
