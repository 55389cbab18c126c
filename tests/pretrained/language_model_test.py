"""A model that starts from a pretrained one, with the same vocabulary or another one."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import archive_model

from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file, write_vocabulary_folder
from tests.commands.elmo_export_test import save_run
from tests.support.bilm_tf import CHAR_CNN, LSTM, OPTIONS, REFERENCE

WORDS = read_vocabulary_file(REFERENCE / "data" / "vocab.txt")
# Half of the words, in another order, and many new ones.
NEW_WORDS = [*WORDS[:3], "new0", *WORDS[:25:-1], *(f"new{i}" for i in range(1, 90))]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_source(options):
    """A pretrained model as a training run with its archive, and as an export, and its module."""
    model = save_run(Path("run"), options)
    archive_model("run")
    export("run", "exported")
    return "exported", model


def start(words, source, **settings):
    """A model that starts from a source, with a vocabulary of these words."""
    write_vocabulary_folder("vocabulary", words)
    vocab = Vocabulary.from_files("vocabulary")
    return BidirectionalLanguageModel(vocab, pretrained_file=str(source), **settings)


def same(actual, expected, *but):
    actual, expected = actual.state_dict(), expected.state_dict()
    return actual.keys() == expected.keys() and all(
        torch.equal(values, expected[key]) for key, values in actual.items() if key not in but
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_same_vocabulary_is_the_same_model(name, caplog):
    _, model = write_source(OPTIONS[name])
    for source in ("exported", "run", "run/model.tar.gz"):
        new = start(WORDS, source, dropout=0.3)
        assert new.options.dropout == 0.3 and new.options.lstm_dim == 7
        assert same(new, model) and all(p.requires_grad for p in new.parameters())
        is_tied = new.softmax.weight is getattr(new.bilm.token_layer, "weight", 0)
        assert is_tied == (name == "tied")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING and "elmo" in r.name]


@pytest.mark.parametrize("name", ["characters", "tokens", "tied"])
def test_words_of_both_vocabularies_keep_their_rows(name, caplog):
    """Also where the new vocabulary is larger than that of the source."""
    source, model = write_source(OPTIONS[name])
    torch.manual_seed(2)
    new = start(NEW_WORDS, source)
    assert f"{source} (50 words): 27 of 117 words are in it and keep their rows" in caplog.text
    shared = [word for word in NEW_WORDS if word in WORDS]
    rows, source_rows = ([words.index(word) for word in shared] for words in (NEW_WORDS, WORDS))
    for key in ("softmax.weight", "softmax.bias", "bilm._token_embedder.weight"):
        if key in model.state_dict():
            assert torch.equal(new.state_dict()[key][rows], model.state_dict()[key][source_rows])
    fresh = [i for i, word in enumerate(NEW_WORDS) if word not in WORDS]
    assert (new.softmax.bias[fresh] == 0).all()
    assert same(new.bilm, model.bilm, "_token_embedder.weight")


@pytest.mark.parametrize("name", ["characters", "tokens", "tied"])
def test_a_model_without_softmax(name, caplog):
    """Of characters, the published weights alone: their options are those for large data."""
    source, model = write_source(OPTIONS[name])
    Path("exported/softmax.hdf5").unlink()
    if name == "characters":
        Path("exported/vocab.txt").unlink()
        shutil.rmtree("exported/vocabulary")
        options = {"char_cnn": {**CHAR_CNN, "n_characters": 262}, "lstm": LSTM}
        Path("exported/options.json").write_text(json.dumps(options))
        new = start(NEW_WORDS, source)
        # bilm-tf's default, 8,192 samples, is more than there are words.
        assert new.softmax.sampler is None and new.softmax.weight.shape == (117, 5)
        assert start(NEW_WORDS, source, num_samples=20).softmax.sampler is not None
    else:
        new = start(WORDS, source)
        parts = read_pretrained(source).modules()
        assert parts.state_dict().keys() == model.state_dict().keys()
        assert (parts["softmax"].weight is parts["bilm"].token_layer.weight) == (name == "tied")
        assert len(parts["softmax"].bias) == len(WORDS)
    assert same(new.bilm, model.bilm) and (new.softmax.bias == 0).all()
    assert "has no softmax: a new one is trained" in caplog.text
    assert "keep their rows" not in caplog.text


def test_options_that_contradict_and_files_that_are_missing():
    options = OPTIONS["characters"]
    source, _ = write_source(options)

    def fails(message, source=source, **settings):
        with pytest.raises(ConfigurationError, match=message):
            start(WORDS, source, **settings)

    for change, key in (
        ({"lstm": {**LSTM, "dim": 9}}, "lstm.dim"),
        ({"lstm": {**LSTM, "cell_clip": None}}, "lstm.cell_clip"),
        ({"char_cnn": {**CHAR_CNN, "filters": [[1, 4], [2, 5]]}}, "char_cnn.filters"),
        ({"bidirectional": False}, "bidirectional"),
    ):
        fails(f'options: "{key}" is .* but .* in .*exported', options={**options, **change})
    fails('"bidirectional" is False', bidirectional=False)
    start(WORDS, source, options={**options, "dropout": 0.5})
    fails("config.json: there is no weights.hdf5 beside it", "run/config.json")
    shutil.rmtree("exported/vocabulary")
    words = Path("exported/vocab.txt")
    words.write_text(words.read_text("utf-8") + "more\n", "utf-8")
    fails("vocab.txt: has 51 words, but the model in .* has 50")
    words.unlink()
    fails("a model of 50 words, but not the vocabulary")
