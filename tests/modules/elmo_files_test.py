"""
A model is the same under every name that it can have: folders and archives in the layouts of all
publishers, checkpoints, training runs, addresses and short names.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.modules import ElmoTokenEmbedder, elmo_files
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.modules.elmo_files import (
    BUNDLED_MODEL,
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    ModelFiles,
    elmo_model,
    find_model,
    resolve,
)
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import write_random_elmo

CHECKPOINT = REFERENCE / "checkpoint"
VOCABULARY = REFERENCE / "data" / "vocab.txt"
SENTENCE = ["the", "naïve", "東京"]
BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"


def copied(target, options="options.json", weights="weights.hdf5", vocabulary=None):
    """A folder with bilm-tf's model under these names."""
    target.mkdir()
    shutil.copy(CHECKPOINT / "options.json", target / options)
    shutil.copy(CHECKPOINT / "weights.hdf5", target / weights)
    if vocabulary is not None:
        shutil.copy(VOCABULARY, target / vocabulary)
    return target


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("published") / "elmo", vocabulary="vocab.txt")


@pytest.fixture(scope="module")
def layers(published):
    files = published / "options.json", published / "weights.hdf5"
    return ElmoEmbedder(*map(str, files)).embed_sentence(SENTENCE)


@pytest.fixture(scope="module")
def archive(published, tmp_path_factory):
    """A `model.tar.gz` of AllenNLP."""
    folder = tmp_path_factory.mktemp("archive") / "model"
    import_model(published, folder)
    return folder / "model.tar.gz"


def packed(folder, form):
    """An archive with this folder in it."""
    return Path(shutil.make_archive(str(folder), form, folder.parent, folder.name))


def checkpoint(target):
    """A folder of bilm-tf before its weights are dumped."""
    shutil.copytree(CHECKPOINT, target)
    (target / "weights.hdf5").unlink()
    shutil.copy(VOCABULARY, target)
    return with_files(target, "corpus.index")


def training_run(archive, target):
    shutil.unpack_archive(archive, target)
    (target / "weights.th").rename(target / "best.th")
    return target


def with_files(folder, *names):
    """With files of other programs, whose names those of other kinds of models have, too."""
    for name in names:
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


LAYOUTS = {
    "folder": lambda source, archive, m: source,
    "NLPL": lambda source, archive, m: copied(m, weights="model.hdf5", vocabulary="vocab-1.txt"),
    "other names": lambda source, archive, m: with_files(
        copied(m, "my_options.json", "slovenian-elmo.hdf5", "vocab.txt"),
        *("config.json", "corpus.index", "corpus.data"),
    ),
    "zip": lambda source, archive, m: packed(source, "zip"),
    "address": lambda source, archive, m: "http://vectors.nlpl.eu/repository/20/209.zip",
    "tar.gz": lambda source, archive, m: packed(
        copied(m, weights="slovenian-elmo-weights.hdf5", vocabulary="vocab.txt"), "gztar"
    ),
    "checkpoint": lambda source, archive, m: checkpoint(m),
    "one checkpoint": lambda source, archive, m: checkpoint(m) / "model.ckpt-30",
    "model.tar.gz": lambda source, archive, m: archive,
    "training run": lambda source, archive, m: training_run(archive, m),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_model_in_each_layout(layout, published, archive, tmp_path, layers, monkeypatch):
    # The downloaded file has a name of the cache, without an ending.
    downloaded = packed(published, "zip").rename(tmp_path / "1a2b3c")
    monkeypatch.setattr(elmo_files, "cached_path", lambda _: str(downloaded))
    model = str(LAYOUTS[layout](published, archive, tmp_path / "m"))
    assert np.array_equal(ElmoEmbedder(model).embed_sentence(SENTENCE), layers)
    # By each of the names that both arguments may have.
    paths = resolve(model, model)
    assert list(elmo_model(model).values()) == [*paths, layers.shape[-1]]
    expected, found = read_pretrained(str(published)).bilm.state_dict(), read_pretrained(model)
    assert found.source == model
    with find_model(model) as files:
        assert files.vocabulary is not None and files.vocabulary.exists()
    for name, values in found.bilm.state_dict().items():
        assert torch.equal(values, expected[name]), name


def test_all_files_of_a_language_model(tmp_path):
    folder = copied(tmp_path / "m")
    options, weights = folder / "options.json", folder / "weights.hdf5"
    with find_model(str(options)) as files:
        assert files == ModelFiles(str(options), options, weights)
    others = folder / "softmax.hdf5", folder / "vocab.txt"
    for path in others:
        path.touch()
    for given in (folder, weights):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, weights, *others) and not files.is_run
    # A checkpoint has more than weights.hdf5, but who names a file means that.
    shutil.copytree(CHECKPOINT, folder, dirs_exist_ok=True)
    prefix = folder / "model.ckpt-30"
    for given in (folder, prefix, Path(f"{prefix}.index")):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, prefix, None, others[1])
            with files.open() as (_, found):
                assert found.n_words == 50
    with find_model(str(weights)) as files:
        assert files.weights == weights
    assert resolve(str(folder)) == (str(options), str(weights))  # for vectors


def test_all_files_of_a_training_run(archive, tmp_path):
    run = training_run(archive, tmp_path / "run")
    with find_model(str(run)) as files, files.open() as (read, found):
        paths = run / "config.json", run / "best.th", None, run / "vocabulary"
        assert files == ModelFiles(str(run), *paths) and files.is_run
        assert found.n_words == read.n_tokens_vocab == 50
    (run / "best.th").unlink()
    with pytest.raises(ValueError, match="needs config.json and weights.th .* or best.th"):
        read_pretrained(str(run))


@pytest.fixture
def folder(tmp_path):
    return copied(tmp_path / "my_elmo")


@pytest.fixture
def downloads(monkeypatch, folder):
    """The addresses asked for; each gives a file of the random model."""
    asked = []

    def cached_path(address):
        asked.append(address)
        return str(folder / ("options.json" if address.endswith("json") else "weights.hdf5"))

    monkeypatch.setattr(elmo_files, "cached_path", cached_path)
    return asked


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
    options, weights = (
        f"{BUCKET}{model}/elmo_{model}_{end}" for end in ("options.json", "weights.hdf5")
    )
    arguments = [(name, name), (name,), (name, DEFAULT_WEIGHT_FILE)]
    arguments += [(options,), (options, DEFAULT_WEIGHT_FILE), (None, weights), (weights,)]
    for each in arguments:
        resolve(*each)
        assert sorted(downloads) == [options, weights]
        downloads.clear()
    Elmo(name), ElmoTokenEmbedder(name), ElmoCharacterEncoder(name, name)
    assert downloads == 3 * [options, weights]


@pytest.mark.parametrize("prefix", ["", "a_"])
def test_one_of_the_two_files_means_its_model(tmp_path, downloads, prefix):
    names = f"{prefix}options.json", f"{prefix}weights.hdf5"
    folder = copied(tmp_path / "m", *names)
    files = tuple(str(folder / name) for name in names)
    if prefix:
        with_files(folder, "b_options.json", "b_weights.hdf5")
    for given in (
        *((files[0],), (files[0], DEFAULT_WEIGHT_FILE), (files[1],), (None, files[1])),
        *((DEFAULT_OPTIONS_FILE, files[1]), files),
    ):
        assert resolve(*given) == files
    assert ElmoTokenEmbedder(weight_file=files[1]).get_output_dim() == 16
    assert not downloads
    other = shutil.copy(files[1], tmp_path / "other.hdf5")
    assert resolve(files[0], str(other)) == (files[0], str(other))


def test_default_options_for_weights_without_options(folder, downloads):
    """As in AllenNLP, for weights of the published size."""
    weights = str(folder.parent / "weights.hdf5")
    (folder / "weights.hdf5").rename(weights)
    for given in (weights, "https://mine.org/weights.hdf5"):
        resolve(DEFAULT_OPTIONS_FILE, given)
        assert DEFAULT_OPTIONS_FILE in downloads
        downloads.clear()
    for lonely in (weights, str(folder / "options.json")):
        with pytest.raises(ValueError, match=f"^{lonely}: there is no .* beside it. A model is"):
            ElmoEmbedder(lonely)
    assert not downloads


def test_what_is_missing_is_named(folder):
    for given, message in (
        (("smal",), "^there is no smal; nor is it one of the models .*'small'"),
        ((str(folder), "nothing.hdf5"), "^there is no nothing.hdf5"),
        (("nowhere/options.json",), "^there is no nowhere/options.json"),
        ((str(folder.parent),), "there is no weights.hdf5; a model is the folder or archive"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            ElmoEmbedder(*given)
    for name in ("", None):
        with pytest.raises(ConfigurationError, match='no model was named.*"tiny"'):
            Elmo(name)
    (folder / "weights.hdf5").unlink()
    with_files(folder, "model.tar.gz")  # as elmo-import writes it
    for use in (ElmoEmbedder, read_pretrained):
        with pytest.raises(FileNotFoundError, match="a model is the folder or archive"):
            use(str(folder))


def test_errors_name_the_archive(folder, tmp_path, downloads):
    with pytest.raises(ValueError, match="^small: has no vocabulary"):
        import_model("small", tmp_path / "imported")
    (folder / "weights.hdf5").write_bytes(b"text")
    path = packed(folder, "zip")
    with pytest.raises(ValueError, match=f"^{path}/my_elmo/weights.hdf5: not an HDF5 file"):
        ElmoEmbedder(str(path))
    (folder / "weights.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match=f"^{path}.*: there is no weights.hdf5; a model is"):
        ElmoEmbedder(str(packed(folder, "zip")))


def test_the_bundled_model(monkeypatch, tmp_path, caplog):
    """Without network; a folder of this name comes first."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    monkeypatch.chdir(tmp_path)
    files = str(BUNDLED_MODEL / "options.json"), str(BUNDLED_MODEL / "weights.hdf5")
    for names in (("tiny",), ("tiny", "tiny"), ("tiny", DEFAULT_WEIGHT_FILE)):
        assert resolve(*names) == files
    assert elmo_model("tiny") == {"options_file": "tiny", "weight_file": "tiny", "dim": 256}
    assert read_pretrained("tiny").bilm.get_output_dim() == 256
    layers = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])
    assert "No model" not in caplog.text
    Path("tiny").mkdir()
    write_random_elmo("tiny", projection_dim=3)
    assert resolve("tiny")[0] == "tiny/options.json"
    assert np.array_equal(ElmoEmbedder().embed_sentence(["A", "sentence"]), layers)
    assert 'No model was named: using "tiny"' in caplog.text and '"original"' in caplog.text
