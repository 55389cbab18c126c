import functools
import inspect
import math
import shutil
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training import LanguageModel, TextBatches
from tests.support.bilm_tf import OPTIONS, REFERENCE, WORDS, load_run, read_vocabulary, variables

SMALL = OPTIONS["characters"]


@pytest.fixture
def vocab(tmp_path):
    return read_vocabulary(tmp_path / "vocabulary")


def first_batch(**settings):
    return next(TextBatches(REFERENCE / "data" / "train.txt", WORDS, 3, **settings).batches())


def test_each_setting_is_that_of_language_model(vocab):
    """None falls between them, and each gets there."""
    ours, below = (
        inspect.signature(model.__init__).parameters
        for model in (BidirectionalLanguageModel, LanguageModel)
    )
    names = below.keys() - {"self", "options", "words", "pretrained", "source", "of_base_class"}
    assert {name: ours[name].default for name in names} == {n: below[n].default for n in names}
    given = {"dropout": 0.25, "variational_dropout": True, "recurrent_dropout": 0.125}
    given.update(state_reset=0.5, precision="bfloat16", bidirectional=False, num_samples=7)
    given.update(share_embedding_softmax=True)
    assert given.keys() == names
    models = (
        BidirectionalLanguageModel(vocab, options=OPTIONS["tokens"], **given),
        LanguageModel(OPTIONS["tokens"], WORDS, **given),
    )
    settings = [
        (m.options, m._state_reset, m._precision, m.bilm.lstm.variational_dropout)
        + (m.bilm.lstm.recurrent_dropout,)
        for m in models
    ]
    assert settings[0] == settings[1] and settings[0][1:5] == (0.5, "bfloat16", True, 0.125)


def test_a_pretrained_model_and_one_with_its_options(vocab, tmp_path):
    """From bilm-tf's checkpoint; archives have no `pretrained_file`."""
    source = shutil.copytree(REFERENCE / "checkpoint", tmp_path / "checkpoint")
    shutil.copy(REFERENCE / "data" / "vocab.txt", source)
    make = functools.partial(BidirectionalLanguageModel, vocab, serialization_dir=str(tmp_path))
    model = make(pretrained_file=str(source))
    _, arrays = load_run("train_charcnn")
    for name, values in variables(model):
        assert (values == arrays[f"final/{name}"]).all(), name
    assert make().options == model.options
    with pytest.raises(ConfigurationError, match='"bidirectional" is False, but'):
        make(pretrained_file=str(source), bidirectional=False)


def test_the_loss_of_metrics_is_that_of_their_perplexity(vocab):
    model = BidirectionalLanguageModel(vocab, options=SMALL)
    assert set(model.get_metrics().values()) == {0.0}  # without words
    loss = model(**first_batch())["loss"].item()
    metrics = model.get_metrics()
    assert math.log(metrics["perplexity"]) == metrics["loss"] == pytest.approx(loss)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "needs options, options_file or pretrained_file"),
        ({"options": SMALL, "options_file": "x.json"}, "either options or options_file"),
        ({"options_file": "nowhere.json"}, "nowhere.json"),
        ({"options_file": "bad.json"}, "bad.json: .* must not exceed"),
        ({"options": SMALL}, "true in the model, but not in the reader"),
    ],
)
def test_settings_that_are_refused(vocab, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text('{"lstm": {"dim": 8, "projection_dim": 16}}')
    with pytest.raises(ConfigurationError, match=message):
        BidirectionalLanguageModel(vocab, **arguments)(**first_batch(bidirectional=False))
