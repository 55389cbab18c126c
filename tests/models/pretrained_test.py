import json
import logging
import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model, archive_model

from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.data.vocabulary import write_vocabulary_folder
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from tests.support.bilm_tf import (
    CHAR_CNN,
    LSTM,
    OPTIONS,
    REFERENCE,
)

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


def start(folder, words, source, **settings):
    """A model that starts from this one, with a vocabulary of these words."""
    return BidirectionalLanguageModel(
        vocabulary(folder / "vocabulary", words), pretrained_file=str(source), **settings
    )


def same(found, expected, *but):
    expected = expected.state_dict()
    assert found.state_dict().keys() == expected.keys()
    return all(
        torch.equal(values, expected[key])
        for key, values in found.state_dict().items()
        if key not in but
    )


@pytest.mark.parametrize("kind", ["archive", "run", "export"])
@pytest.mark.parametrize("name", OPTIONS)
def test_same_vocabulary_is_the_same_model(name, kind, tmp_path, caplog):
    source, model = write_source(tmp_path, OPTIONS[name], kind)
    made = start(tmp_path, WORDS, source, dropout=0.3)
    assert made.options.dropout == 0.3 and made.options.lstm_dim == 7
    assert same(made, model)
    assert (made.softmax.weight is getattr(made.bilm.token_layer, "weight", 0)) == (name == "tied")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING and "elmo" in r.name]


@pytest.mark.parametrize("kind", ["archive", "export"])
@pytest.mark.parametrize("name", ["characters", "tokens", "tied"])
def test_words_of_both_vocabularies_keep_their_rows(name, kind, tmp_path, caplog):
    """Also where the new vocabulary is larger than that of the source."""
    source, model = write_source(tmp_path, OPTIONS[name], kind)
    torch.manual_seed(2)
    made = start(tmp_path, NEW_WORDS, source)
    shared = [word for word in NEW_WORDS if word in WORDS]
    fresh = [i for i, word in enumerate(NEW_WORDS) if word not in WORDS]
    assert (len(WORDS), len(NEW_WORDS), len(shared)) == (50, 117, 27)
    message = f"{source} (50 words): 27 of 117 words are in it and keep their rows"
    assert message in caplog.text
    rows, source_rows = ([words.index(word) for word in shared] for words in (NEW_WORDS, WORDS))
    tables = [(made.softmax.weight, model.softmax.weight), (made.softmax.bias, model.softmax.bias)]
    if name != "characters":
        tables.append((made.bilm.token_layer.weight, model.bilm.token_layer.weight))
    for table, source_table in tables:
        assert torch.equal(table[rows], source_table[source_rows])
    assert (made.softmax.bias[fresh] == 0).all()
    if name != "tied":  # The initial distribution of a softmax.
        deviation = made.softmax.weight[fresh].std().item()
        assert deviation == pytest.approx(1 / math.sqrt(5), rel=0.15)
    assert same(made.bilm, model.bilm, "_token_embedder.weight")


def test_only_tables_of_words_draw_random_numbers(tmp_path):
    """Other parameters are not initialised before they are replaced."""
    source, model = write_source(tmp_path, OPTIONS["characters"])
    torch.manual_seed(0)
    made = start(tmp_path, NEW_WORDS, source)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    Softmax(len(NEW_WORDS), 5)
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.requires_grad for parameter in made.parameters())


def test_published_weights_alone(tmp_path, caplog):
    """Without softmax and vocabulary, and with the options of a training on large data."""
    source, model = write_source(tmp_path, OPTIONS["characters"])
    for name in ("softmax.hdf5", "vocab.txt"):
        (tmp_path / "exported" / name).unlink()
    shutil.rmtree(tmp_path / "exported" / "vocabulary")
    options = {"char_cnn": {**CHAR_CNN, "n_characters": 262}, "lstm": LSTM}
    (tmp_path / "exported" / "options.json").write_text(json.dumps(options), encoding="utf-8")
    made = start(tmp_path, NEW_WORDS, source)
    assert "has no softmax: a new one is trained" in caplog.text
    assert "keep their rows" not in caplog.text
    assert same(made.bilm, model.bilm)
    assert (made.softmax.bias == 0).all() and made.softmax.weight.shape == (117, 5)
    # bilm-tf's default, 8,192 samples, is more than there are words.
    assert made.softmax.sampler is None
    assert start(tmp_path, NEW_WORDS, source, num_samples=20).softmax.sampler is not None


@pytest.mark.parametrize("name", ["tokens", "tied"])
def test_token_embedding_without_softmax(name, tmp_path, caplog):
    source, model = write_source(tmp_path, OPTIONS[name])
    (tmp_path / "exported" / "softmax.hdf5").unlink()
    made = start(tmp_path, WORDS, source)
    assert same(made.bilm, model.bilm) and "has no softmax" in caplog.text
    parts = read_pretrained(source).modules()
    assert parts.state_dict().keys() == model.state_dict().keys()
    tied = [each["softmax"].weight is each["bilm"].token_layer.weight for each in (parts,)]
    assert tied == [name == "tied"] and len(parts["softmax"].bias) == len(WORDS)


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
    assert same(again, model)
    # And it can be a source itself.
    assert same(start(tmp_path, NEW_WORDS, run / "model.tar.gz"), model)
    archive_model(str(run))
    with pytest.raises(ConfigurationError, match=r'"include_in_archive": \["options.json"\]'):
        Model.from_archive(str(run / "model.tar.gz"))


class TestBadInput:
    def fails(self, source, message, **settings):
        with pytest.raises(ConfigurationError, match=message):
            start(source.parent, WORDS, source, **settings)

    @pytest.mark.parametrize(
        "change, key",
        [
            ({"lstm": {**LSTM, "dim": 9}}, "lstm.dim"),
            ({"lstm": {**LSTM, "cell_clip": None}}, "lstm.cell_clip"),
            ({"char_cnn": {**CHAR_CNN, "filters": [[1, 4], [2, 5]]}}, "char_cnn.filters"),
            ({"bidirectional": False}, "bidirectional"),
        ],
    )
    def test_options_that_contradict(self, change, key, tmp_path):
        source = Path(write_source(tmp_path, OPTIONS["characters"])[0])
        message = f'options: "{key}" is .* but .* in .*exported'
        self.fails(source, message, options={**OPTIONS["characters"], **change})
        start(tmp_path, WORDS, source, options={**OPTIONS["characters"], "dropout": 0.5})

    def test_missing_and_wrong_files(self, tmp_path):
        (tmp_path / "text").write_text("text")
        self.fails(
            tmp_path / "text", "text: there is no weights.hdf5 beside it. A model is the folder"
        )
        (tmp_path / "empty").mkdir()
        self.fails(tmp_path / "empty", "empty: .*weights.hdf5")
        folder = Path(write_source(tmp_path, OPTIONS["characters"])[0])
        self.fails(folder, '"bidirectional" is False', bidirectional=False)
        shutil.rmtree(folder / "vocabulary")
        words = folder / "vocab.txt"
        text = words.read_text(encoding="utf-8")
        words.write_text(text + "more\n", encoding="utf-8")
        self.fails(folder, "vocab.txt: has 51 words, but the model in .* has 50")
        words.unlink()
        self.fails(folder, "a model of 50 words, but not the vocabulary")
        (folder / "options.json").unlink()
        self.fails(folder, "options.json: there is no such file")


PROGRAM = {"type": "subprocess.Popen", "args": ["touch", "ran"]}
"""What AllenNLP constructs from this is a running program."""


class Program:
    def __reduce__(self):
        return subprocess.Popen, (["touch", "ran"],)


class TestFilesFromStrangers:
    """The one reader of archives, as `elmo-export` and `pretrained_file` call it."""

    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        return Path(write_source(tmp_path, OPTIONS["characters"], "run")[0])

    def edit(self, run, **sections):
        config = {**json.loads((run / "config.json").read_text(encoding="utf-8")), **sections}
        (run / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def fails(self, source, message):
        """Both refuse it, and no program has run."""
        for read in (
            lambda: export(str(source), Path("elmo")),
            lambda: start(Path(), WORDS, source),
        ):
            with pytest.raises((ConfigurationError, OSError, ValueError), match=message) as error:
                read()
            assert str(source) in str(error.value) and str(error.value).isprintable()
        assert not Path("elmo").exists() and not Path("ran").exists()

    def test_what_the_config_names_is_not_constructed(self, run):
        arguments = ("regularizer", "initializer", "ddp_accelerator", "precision")
        model = {"type": "bidirectional_lm", "options": OPTIONS["characters"]}
        others = dict.fromkeys(("dataset_reader", "trainer", "vocabulary"), PROGRAM)
        self.edit(run, model={**model, **dict.fromkeys(arguments, PROGRAM)}, **others)
        archive_model(str(run))
        export(str(run / "model.tar.gz"), Path("elmo"))
        made = start(Path(), WORDS, run / "model.tar.gz").state_dict()
        expected = torch.load(run / "best.th")
        assert all(torch.equal(made[name], expected[name]) for name in expected)
        assert Path("elmo/weights.hdf5").exists() and not Path("ran").exists()

    def test_weights(self, run):
        state = torch.load(run / "best.th")
        for changes, message in (
            ({"dim": 2**31 - 1}, "best.th: a model of these options has no parameter .* of the"),
            ({"n_layers": 2**31 - 1}, "best.th: the parameter .*layer_2.* is missing"),
        ):
            options = {**OPTIONS["characters"], "lstm": {**LSTM, **changes}}
            self.edit(run, model={"type": "bidirectional_lm", "options": options})
            self.fails(run, message)
        self.edit(run, model={"type": "bidirectional_lm", "options": OPTIONS["characters"]})
        for changes, message in (
            ({"softmax.bias": torch.full((50,), math.nan)}, "'softmax/b' contains NaN or infinity"),
            ({"more": torch.zeros(3)}, "a model of these options has no parameter 'more'"),
            ({"program": Program()}, "damaged, or contains something else .*Popen"),
        ):
            torch.save({**state, **changes}, run / "best.th")
            self.fails(run, f"best.th: .*{message}")
