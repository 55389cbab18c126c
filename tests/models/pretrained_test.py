import json
import logging
import math
import shutil

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model, archive_model

from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from tests.bilm_tf import REFERENCE, load_run, read_vocabulary, variables

LSTM = {
    "dim": 7,
    "projection_dim": 5,
    "n_layers": 2,
    "cell_clip": 3,
    "proj_clip": 3,
    "use_skip_connections": True,
}
CHAR_CNN = {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1}
OPTIONS = {
    "characters": {"char_cnn": CHAR_CNN, "lstm": LSTM, "dropout": 0.2},
    "tokens": {"lstm": LSTM},
    "tied": {"lstm": LSTM, "share_embedding_softmax": True},
    "forward only": {"char_cnn": CHAR_CNN, "lstm": LSTM, "bidirectional": False},
}
OPTIONS = {name: {**values, "sample_softmax": False} for name, values in OPTIONS.items()}
WORDS = read_vocabulary_file(REFERENCE / "data" / "vocab.txt")
# Half of the words, in another order, and many new ones.
NEW_WORDS = [*WORDS[:3], "new0", *WORDS[:25:-1], *(f"new{i}" for i in range(1, 90))]


def vocabulary(folder, words):
    write_vocabulary_folder(folder, words)
    return Vocabulary.from_files(str(folder))


def write_source(folder, options, kind="export"):
    """A pretrained model in one of the forms that it can come in; its path, and the model."""
    torch.manual_seed(1)
    run = folder / "source_run"
    vocab = vocabulary(run / "vocabulary", WORDS)
    model = BidirectionalLanguageModel(vocab, options=options)
    with torch.no_grad():
        model.softmax.bias.normal_()
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "options": options},
    }
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), run / "best.th")
    if kind == "archive":
        archive_model(str(run))
        return str(run / "model.tar.gz"), model
    if kind == "export":
        export(str(run), folder / "exported")
        return str(folder / "exported"), model
    return str(run), model


@pytest.mark.parametrize("kind", ["archive", "run", "export"])
@pytest.mark.parametrize("name", OPTIONS)
def test_same_vocabulary_is_the_same_model(name, kind, tmp_path, caplog):
    source, model = write_source(tmp_path, OPTIONS[name], kind)
    caplog.clear()
    made = BidirectionalLanguageModel(
        vocabulary(tmp_path / "vocabulary", WORDS), pretrained_file=source, dropout=0.3
    )
    assert made.options.dropout == 0.3 and made.options.lstm_dim == 7
    expected = model.state_dict()
    assert list(made.state_dict()) == list(expected)
    for key, value in made.state_dict().items():
        assert torch.equal(value, expected[key]), key
    assert (made.softmax.weight is getattr(made.bilm.token_layer, "weight", 0)) == (name == "tied")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING and "elmo" in r.name]


@pytest.mark.parametrize("kind", ["archive", "export"])
@pytest.mark.parametrize("name", ["characters", "tokens", "tied"])
def test_words_of_both_vocabularies_keep_their_rows(name, kind, tmp_path, caplog):
    """Also where the new vocabulary is larger than that of the source."""
    source, model = write_source(tmp_path, OPTIONS[name], kind)
    torch.manual_seed(2)
    made = BidirectionalLanguageModel(
        vocabulary(tmp_path / "vocabulary", NEW_WORDS), pretrained_file=source
    )
    shared = [word for word in NEW_WORDS if word in WORDS]
    fresh = [i for i, word in enumerate(NEW_WORDS) if word not in WORDS]
    assert (len(WORDS), len(NEW_WORDS), len(shared)) == (50, 117, 27)
    message = f"{source} (50 words): 27 of 117 words are in it and keep their rows, 90 start fresh"
    assert message in caplog.text
    rows, source_rows = ([words.index(word) for word in shared] for words in (NEW_WORDS, WORDS))
    tables = [(made.softmax.weight, model.softmax.weight), (made.softmax.bias, model.softmax.bias)]
    if name != "characters":
        tables.append((made.bilm.token_layer.weight, model.bilm.token_layer.weight))
    for table, source_table in tables:
        assert torch.equal(table[rows], source_table[source_rows])
    assert (made.softmax.bias[fresh] == 0).all()
    if name != "tied":
        # The initial distribution of a softmax.
        deviation = made.softmax.weight[fresh].std().item()
        assert deviation == pytest.approx(1 / math.sqrt(5), rel=0.15)
    for key, value in made.bilm.named_parameters():
        if key != "_token_embedder.weight":
            assert torch.equal(value, dict(model.bilm.named_parameters())[key]), key


def test_published_weights_alone(tmp_path, caplog):
    """Without softmax and vocabulary, and with the options of a training on large data."""
    source, model = write_source(tmp_path, OPTIONS["characters"])
    for name in ("softmax.hdf5", "vocab.txt"):
        (tmp_path / "exported" / name).unlink()
    shutil.rmtree(tmp_path / "exported" / "vocabulary")
    options = {"char_cnn": {**CHAR_CNN, "n_characters": 262}, "lstm": LSTM}
    (tmp_path / "exported" / "options.json").write_text(json.dumps(options), encoding="utf-8")
    made = BidirectionalLanguageModel(
        vocabulary(tmp_path / "vocabulary", NEW_WORDS), pretrained_file=source
    )
    assert "has no softmax: all 117 rows of it start fresh" in caplog.text
    for key, value in made.bilm.named_parameters():
        assert torch.equal(value, dict(model.bilm.named_parameters())[key]), key
    assert (made.softmax.bias == 0).all() and made.softmax.weight.shape == (117, 5)
    # bilm-tf's default, 8,192 samples, is more than there are words.
    assert made.softmax.sampler is None
    sampled = BidirectionalLanguageModel(made.vocab, pretrained_file=source, num_samples=20)
    assert sampled.softmax.sampler is not None


def test_token_embedding_without_softmax(tmp_path, caplog):
    source, model = write_source(tmp_path, OPTIONS["tokens"])
    (tmp_path / "exported" / "softmax.hdf5").unlink()
    made = BidirectionalLanguageModel(
        vocabulary(tmp_path / "vocabulary", WORDS), pretrained_file=source
    )
    assert torch.equal(made.bilm.token_layer.weight, model.bilm.token_layer.weight)
    assert not torch.equal(made.softmax.weight, model.softmax.weight)
    assert "has no softmax" in caplog.text


def test_checkpoint_of_bilm_tf(tmp_path):
    shutil.copytree(REFERENCE / "checkpoint", tmp_path / "checkpoint")
    shutil.copy(REFERENCE / "data" / "vocab.txt", tmp_path / "checkpoint")
    vocab = read_vocabulary(tmp_path / "vocabulary")
    made = BidirectionalLanguageModel(vocab, pretrained_file=str(tmp_path / "checkpoint"))
    _, arrays = load_run("train_charcnn")
    for name, values in variables(made):
        assert (values == arrays[f"final/{name}"]).all(), name


def test_archive_needs_the_source_no_more(tmp_path):
    source, _ = write_source(tmp_path, OPTIONS["characters"])
    run = tmp_path / "fine_tuned"
    vocab = vocabulary(run / "vocabulary", NEW_WORDS)
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "pretrained_file": source, "dropout": 0.4},
    }
    model = Model.from_params(Params({**config["model"]}), vocab=vocab, serialization_dir=str(run))
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), run / "best.th")
    archive_model(str(run), include_in_archive=["options.json"])
    shutil.rmtree(source)
    again = Model.from_archive(str(run / "model.tar.gz"))
    assert again.options == model.options and again.options.dropout == 0.4
    for key, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[key]), key
    # And it can be a source itself.
    third = BidirectionalLanguageModel(vocab, pretrained_file=str(run / "model.tar.gz"))
    assert torch.equal(third.softmax.weight, model.softmax.weight)
    archive_model(str(run))
    with pytest.raises(ConfigurationError, match=r'"include_in_archive": \["options.json"\]'):
        Model.from_archive(str(run / "model.tar.gz"))


class TestBadInput:
    def fails(self, source, message, **kwargs):
        vocab = vocabulary(source.parent / "vocabulary", WORDS)
        with pytest.raises(ConfigurationError, match=message):
            BidirectionalLanguageModel(vocab, pretrained_file=str(source), **kwargs)

    @pytest.mark.parametrize(
        "change, key",
        [
            ({"lstm": {**LSTM, "dim": 9}}, "lstm.dim"),
            ({"lstm": {**LSTM, "cell_clip": None}}, "lstm.cell_clip"),
            ({"char_cnn": {**CHAR_CNN, "activation": "tanh"}}, "char_cnn.activation"),
            ({"char_cnn": {**CHAR_CNN, "filters": [[1, 4], [2, 5]]}}, "char_cnn.filters"),
            ({"bidirectional": False}, "bidirectional"),
        ],
    )
    def test_options_that_contradict(self, change, key, tmp_path):
        write_source(tmp_path, OPTIONS["characters"])
        options = {**OPTIONS["characters"], **change}
        message = f'options: "{key}" is .* but .* in .*exported'
        self.fails(tmp_path / "exported", message, options=options)
        options = {**OPTIONS["characters"], "dropout": 0.5, "n_negative_samples_batch": 9}
        vocab = vocabulary(tmp_path / "other", WORDS)
        BidirectionalLanguageModel(
            vocab, options=options, pretrained_file=str(tmp_path / "exported")
        )

    def test_argument_that_contradicts(self, tmp_path):
        write_source(tmp_path, OPTIONS["characters"])
        self.fails(tmp_path / "exported", '"bidirectional" is False', bidirectional=False)

    def test_missing_and_wrong_files(self, tmp_path):
        self.fails(tmp_path / "nowhere", "nowhere")
        (tmp_path / "text").write_text("text")
        self.fails(tmp_path / "text", "text is not a model.tar.gz")
        (tmp_path / "empty").mkdir()
        self.fails(tmp_path / "empty", "empty: .*weights.hdf5")
        write_source(tmp_path, OPTIONS["characters"])
        folder = tmp_path / "exported"
        shutil.rmtree(folder / "vocabulary")
        words = folder / "vocab.txt"
        text = words.read_text(encoding="utf-8")
        words.write_text(text + "more\n", encoding="utf-8")
        self.fails(folder, "vocab.txt: has 51 words, but the model in .* has 50")
        words.unlink()
        self.fails(folder, "a model of 50 words, but not the vocabulary")
        (folder / "options.json").unlink()
        self.fails(folder, "options.json: there is no such file")

    def test_nothing_given(self, tmp_path):
        vocab = vocabulary(tmp_path / "vocabulary", WORDS)
        for folder in (None, str(tmp_path)):
            with pytest.raises(ConfigurationError, match="options_file or pretrained_file"):
                BidirectionalLanguageModel(vocab, serialization_dir=folder)
