"""
A model is the same under every name that it can have: folders and archives in the layouts of all
publishers, checkpoints, training runs, addresses and short names.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.plugin.components import ElmoTokenEmbedder
from allennlp_elmo_plugin.pretrained.find_model import (
    BUNDLED_MODEL,
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    elmo_model,
    find_model,
)
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import read_arrays, write_random_elmo

CHECKPOINT = REFERENCE / "checkpoint"
SENTENCE = ["the", "naïve", "東京"]
BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"


def paths_of(*names):
    with find_model(*names) as files:
        return str(files.options), str(files.weights)


def copied(target, options="options.json", weights="weights.hdf5"):
    """Return a folder with bilm-tf's model under these names, and its vocabulary."""
    target.mkdir()
    shutil.copy(CHECKPOINT / "options.json", target / options)
    shutil.copy(CHECKPOINT / "weights.hdf5", target / weights)
    shutil.copy(REFERENCE / "data" / "vocab.txt", target)
    return target


def packed(folder, form):
    """Return an archive with this folder in it."""
    return Path(shutil.make_archive(str(folder), form, folder.parent, folder.name))


@pytest.fixture
def folder(tmp_path):
    return copied(tmp_path / "my_elmo")


@pytest.fixture
def archive(folder, tmp_path):
    """A `model.tar.gz` of AllenNLP."""
    import_model(folder, tmp_path / "imported")
    return tmp_path / "imported" / "model.tar.gz"


@pytest.fixture
def run(archive, tmp_path):
    """The folder of a training run."""
    shutil.unpack_archive(archive, tmp_path / "run")
    (tmp_path / "run" / "weights.th").rename(tmp_path / "run" / "best.th")
    return tmp_path / "run"


@pytest.fixture
def downloads(monkeypatch, folder):
    """The addresses asked for; each gives a file of the model."""
    asked = []

    def cached_path(address):
        asked.append(address)
        return str(folder / ("options.json" if address.endswith("json") else "weights.hdf5"))

    monkeypatch.setattr(f"{find_model.__module__}.cached_path", cached_path)
    return asked


def test_the_same_model_in_each_layout(folder, archive, run, tmp_path, monkeypatch):
    other_names = copied(tmp_path / "other", "my_options.json", "slovenian-elmo.hdf5")
    checkpoint = copied(tmp_path / "checkpoint")
    shutil.copytree(CHECKPOINT, checkpoint, dirs_exist_ok=True)
    (checkpoint / "weights.hdf5").unlink()  # which bilm-tf dumps later
    # Files of other programs, whose names those of other kinds of models have, too
    (checkpoint / "corpus.index").write_text("{}", encoding="utf-8")
    for name in ("config.json", "corpus.index", "corpus.data"):
        (other_names / name).write_text("{}", encoding="utf-8")
    # The downloaded file has a name of the cache, without an ending.
    downloaded = packed(folder, "zip").rename(tmp_path / "1a2b3c")
    monkeypatch.setattr(f"{find_model.__module__}.cached_path", lambda _: str(downloaded))
    files = folder / "options.json", folder / "weights.hdf5"
    layers = ElmoEmbedder(*map(str, files)).embed_sentence(SENTENCE)
    expected = read_pretrained(str(folder)).bilm.state_dict()
    models = [folder, other_names, packed(folder, "zip"), packed(other_names, "gztar"), archive]
    models += [archive.parent, run, checkpoint, checkpoint / "model.ckpt-30"]
    for model in [*map(str, models), "http://vectors.nlpl.eu/repository/20/209.zip"]:
        assert np.array_equal(ElmoEmbedder(model).embed_sentence(SENTENCE), layers), model
        # By each of the names that both arguments may have.
        *names, dim = elmo_model(model).values()
        assert dim == layers.shape[-1]
        assert np.array_equal(ElmoEmbedder(*names).embed_sentence(SENTENCE), layers)
        pretrained = read_pretrained(model)
        assert pretrained.source == model
        with find_model(model) as files:
            assert files.vocabulary.exists()
        for name, values in pretrained.bilm.state_dict().items():
            assert torch.equal(values, expected[name]), (model, name)


@pytest.mark.parametrize("scope", ["bilm", "module_1/bilm"])
def test_modules_of_tensorflow_hub(scope, tmp_path):
    """
    The names are those in public logs of Google's module: bilm-tf's graph for prediction, whose
    first character is the padding, and which has no options.
    """
    elmo = write_random_elmo(tmp_path, n_highway=2)
    module = tmp_path / "module"
    (module / "variables").mkdir(parents=True)
    variables = {"aggregation/weights": np.ones(3, "float32"), f"{scope}/Variable": np.ones(4)}
    for name, values in read_arrays(elmo[1]).items():
        kinds = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
        cell, _, kind = name.rpartition("/LSTMCell/")
        name = f"{cell}/rnn/lstm_cell/{kinds[kind]}" if cell else name
        if name == "char_embed":
            values = np.concatenate([np.ones((1, values.shape[1]), "float32"), values])
        variables[f"{scope}/{name}"] = values
    write_checkpoint(module / "variables" / "variables", variables)
    for name in ("saved_model.pb", "tfhub_module.pb", "embedded_text.hdf5"):
        (module / name).touch()
    packed_at_its_top = shutil.make_archive(str(tmp_path / "elmo_ru-wiki"), "gztar", module)
    expected = ElmoEmbedder(*elmo).embed_sentence(SENTENCE)
    for model in (str(module), packed_at_its_top):
        assert np.array_equal(ElmoEmbedder(model).embed_sentence(SENTENCE), expected)
        assert elmo_model(model)["dim"] == expected.shape[-1]
        assert read_pretrained(model).options.char_cnn.n_highway == 2
    del variables[f"{scope}/char_embed"]
    write_checkpoint(module / "variables" / "variables", variables)
    with pytest.raises(ValueError, match='variables: "char_cnn.embedding.dim" must be a whole'):
        ElmoEmbedder(str(module))


def test_all_files_of_a_language_model(folder, run):
    names = "options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt"
    options, weights, softmax, vocabulary = (folder / name for name in names)
    softmax.touch()
    for path in (folder, weights):
        with find_model(str(path)) as files:
            assert files[1:] == (str(path), options, weights, softmax, vocabulary)
    # As AllenNLP publishes them; another vocabulary may have come with something else.
    renamed = {name: name.rename(folder / f"elmo_2x9_{name.name}") for name in (options, weights)}
    renamed[softmax] = softmax.rename(folder / "elmo_2x9_softmax_weights.hdf5")
    renamed[vocabulary] = vocabulary.rename(folder / "vocab-2016-09-10.txt")
    for path in (folder, *renamed.values()):
        if path not in (renamed[softmax], renamed[vocabulary]):
            with find_model(str(path)) as files:
                assert files[1:] == (str(path), *renamed.values())
    for name, path in renamed.items():
        path.rename(name)
    # A checkpoint has more than weights.hdf5, but who names a file means that.
    shutil.copytree(CHECKPOINT, folder, dirs_exist_ok=True)
    prefix = folder / "model.ckpt-30"
    for path in (folder, prefix, Path(f"{prefix}.index")):
        with find_model(str(path), for_training=True) as files:
            assert files[1:] == (str(path), options, prefix, None, vocabulary)
    assert paths_of(str(weights)) == paths_of(str(folder)) == (str(options), str(weights))
    with find_model(str(run)) as files:
        paths = run / "config.json", run / "best.th", None, run / "vocabulary"
        assert files[1:] == (str(run), *paths)
    (run / "best.th").unlink()
    with pytest.raises(ValueError, match="needs config.json and weights.th .* or best.th"):
        read_pretrained(str(run))


@pytest.mark.parametrize(
    "name, model",
    [
        ("small", "2x1024_128_2048cnn_1xhighway"),
        ("medium", "2x2048_256_2048cnn_1xhighway"),
        ("original", "2x4096_512_2048cnn_2xhighway"),
        ("original-5.5b", "2x4096_512_2048cnn_2xhighway_5.5B"),
    ],
)
def test_short_names(downloads, name, model):
    ends = "options.json", "weights.hdf5"
    options, weights = (f"{BUCKET}{model}/elmo_{model}_{end}" for end in ends)
    arguments = [(name, name), (name,), (name, DEFAULT_WEIGHT_FILE)]
    arguments += [(options,), (options, DEFAULT_WEIGHT_FILE), (None, weights), (weights,)]
    for names in arguments:
        paths_of(*names)
        assert sorted(downloads) == [options, weights]
        downloads.clear()
    Elmo(name), ElmoTokenEmbedder(name), ElmoCharacterEncoder(name, name)
    assert downloads == 3 * [options, weights]


def test_one_of_the_two_files_means_its_model(tmp_path, downloads):
    names = "a_options.json", "a_weights.hdf5"
    folder = copied(tmp_path / "m", *names)
    options, weights = (str(folder / name) for name in names)
    for name in ("b_options.json", "b_weights.hdf5"):
        (folder / name).touch()
    for arguments in (
        *((options,), (options, DEFAULT_WEIGHT_FILE), (weights,), (None, weights)),
        *((DEFAULT_OPTIONS_FILE, weights), (options, weights)),
    ):
        assert paths_of(*arguments) == (options, weights)
    assert not downloads
    other = shutil.copy(weights, tmp_path / "other.hdf5")
    assert paths_of(options, str(other)) == (options, str(other))


def test_default_options_for_weights_without_options(folder, downloads):
    """As in AllenNLP, for weights of the published size."""
    weights = str(folder.parent / "weights.hdf5")
    (folder / "weights.hdf5").rename(weights)
    for weight_file in (weights, "https://mine.org/weights.hdf5"):
        paths_of(DEFAULT_OPTIONS_FILE, weight_file)
        assert DEFAULT_OPTIONS_FILE in downloads
        downloads.clear()
    for lonely in (weights, str(folder / "options.json")):
        with pytest.raises(ValueError, match=f"^{lonely}: there is no .* beside it. A model is"):
            ElmoEmbedder(lonely)
    assert not downloads


def test_errors_name_what_is_missing_and_the_archive(folder, downloads):
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="^small: has no vocabulary"):
        import_model("small", folder.parent / "imported")
    for name in ("", None):
        with pytest.raises(ValueError, match='no model was named.*"tiny"'):
            Elmo(name)
    (folder / "weights.hdf5").write_bytes(b"text")
    path = packed(folder, "zip")
    with pytest.raises(ValueError, match=f"^{path}/my_elmo/weights.hdf5: not an HDF5 file"):
        ElmoEmbedder(str(path))
    (folder / "weights.hdf5").unlink()
    (folder / "model.tar.gz").touch()  # as elmo-import writes it
    (folder / "fairseq.pt").write_bytes(b"text")
    for _ in range(2):
        with pytest.raises(ValueError, match="fairseq.pt.*which only fairseq reads"):
            ElmoEmbedder(str(folder / "fairseq.pt"))
        torch.save({}, folder / "fairseq.pt")
    no_weights = "there is no weights.hdf5; a model is the folder or archive"
    for arguments, message in (
        (("C://smal",), "^there is no C://smal; nor is it one of the models"),
        (("smal",), "^there is no smal; nor is it one of the models .*'small'"),
        ((str(folder), "nothing.hdf5"), "^there is no nothing.hdf5"),
        (("nowhere/options.json",), "^there is no nowhere/options.json"),
        ((str(folder.parent),), no_weights),
        ((str(folder),), no_weights),
        ((str(packed(folder, "zip")),), f"^{path}.*: {no_weights}"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            ElmoEmbedder(*arguments)


def test_the_bundled_model(monkeypatch, tmp_path, caplog):
    """Without network; a folder of this name comes first."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    monkeypatch.chdir(tmp_path)
    files = str(BUNDLED_MODEL / "options.json"), str(BUNDLED_MODEL / "weights.hdf5")
    for names in (("tiny",), ("tiny", "tiny"), ("tiny", DEFAULT_WEIGHT_FILE)):
        assert paths_of(*names) == files
    assert elmo_model("tiny") == {"options_file": "tiny", "weight_file": "tiny", "dim": 256}
    layers = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])
    assert "No model" not in caplog.text
    write_random_elmo("tiny", projection_dim=3)
    assert paths_of("tiny")[0] == "tiny/options.json"
    assert np.array_equal(ElmoEmbedder().embed_sentence(["A", "sentence"]), layers)
    assert 'No model was named: using "tiny"' in caplog.text and '"original"' in caplog.text
