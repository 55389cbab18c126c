"""
A model is the same under every name that it can have: folders and archives in the layouts of all
publishers, checkpoints, training runs, addresses and short names.
"""

import gzip
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import requests
import torch
from allennlp.common.checks import ConfigurationError
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.model_card import facts_of
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
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import read_arrays, read_files, write_random_elmo

VOCABULARY = REFERENCE / "data" / "vocab.txt"
SENTENCE = ["the", "naïve", "東京"]
BIG = "elmo_2x4096_512_2048cnn_2xhighway_"
BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"


@pytest.fixture(scope="module")
def published(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("published") / "elmo"
    folder.mkdir()
    write_random_elmo(folder)
    shutil.copy(VOCABULARY, folder)
    return folder


@pytest.fixture(scope="module")
def layers(published: Path) -> Any:
    files = published / "options.json", published / "weights.hdf5"
    return ElmoEmbedder(*map(str, files)).embed_sentence(SENTENCE)


@pytest.fixture(scope="module")
def archive(published: Path, tmp_path_factory: Any) -> Path:
    """A `model.tar.gz` of AllenNLP."""
    folder = tmp_path_factory.mktemp("archive") / "model"
    import_model(published, folder)
    return folder / "model.tar.gz"


def copied(source: Path, target: Path, **names: str) -> Path:
    """A copy of the model's files under other names, by `options`, `weights` and `vocabulary`."""
    target.mkdir(parents=True)
    for key, file in (("options", "options.json"), ("weights", "weights.hdf5")):
        shutil.copy(source / file, target / names.get(key, file))
    if "vocabulary" in names:
        text = (source / "vocab.txt").read_bytes()
        is_packed = names["vocabulary"].endswith(".gz")
        (target / names["vocabulary"]).write_bytes(gzip.compress(text) if is_packed else text)
    return target


def nlpl(source: Path, target: Path, vocabulary: str = "vocab.txt") -> Path:
    """As in the NLPL vector repository, and with the options of bilm-tf's training."""
    copied(source, target, weights="model.hdf5", vocabulary=vocabulary)
    options = json.loads((target / "options.json").read_text(encoding="utf-8"))
    del options["bidirectional"]
    options["char_cnn"]["n_characters"] = 261
    options.update(unroll_steps=20, batch_size=128, n_train_tokens=768648884, n_tokens_vocab=50)
    (target / "options.json").write_text(json.dumps(options), encoding="utf-8")
    (target / "meta.json").write_text('{"id": 209}', encoding="utf-8")
    return target


def zipped(folder: Path, target: Path, within: str = "", **more: bytes) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in {**read_files(folder), **more}.items():
            packed.writestr(within + name, data)
    return target


def tarred(folder: Path, target: Path, within: str) -> Path:
    with tarfile.open(target, "w:gz") as packed:
        packed.add(folder, within)
    return target


def checkpoint(source: Path, target: Path) -> Path:
    """A folder of bilm-tf before its weights are dumped."""
    target.mkdir()
    values: Dict[str, Any] = {
        f"lm/{name}": each for name, each in read_arrays(source / "weights.hdf5").items()
    }
    values["lm/softmax/W"], values["lm/softmax/b"] = np.ones((50, 8), "f"), np.ones(50, "f")
    write_checkpoint(target / "model.ckpt-3", values)
    for name in ("options.json", "vocab.txt"):
        shutil.copy(source / name, target)
    return target


def run_of(archive: Path, target: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(target)
    (target / "weights.th").rename(target / "best.th")
    return target


def with_files(folder: Path, *names: str) -> Path:
    """With files of other programs, whose names those of other kinds of models have, too."""
    for name in names:
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


MAC = {"__MACOSX/._options.json": b"\0\5\26\7", "__MACOSX/._model.hdf5": b"\0\5", ".DS_Store": b""}

Layout = Callable[[Path, Path, Path], Path]
LAYOUTS: Dict[str, Layout] = {
    "folder": lambda source, archive, here: source,
    "simple_elmo": lambda source, archive, here: nlpl(source, here / "m", "vocab.txt.gz"),
    "AllenNLP's names": lambda source, archive, here: copied(
        source, here / "m", options=f"{BIG}options.json", weights=f"{BIG}weights.hdf5"
    ),
    "other names": lambda source, archive, here: with_files(
        copied(source, here / "m", options="my_options.json", weights="slovenian-elmo.hdf5"),
        "config.json",
        "corpus.index",
        "corpus.data",
    ),
    "zip of a folder": lambda source, archive, here: zipped(
        nlpl(source, here / "m"), here / "209.zip", "209/", **MAC
    ),
    "zip of Windows": lambda source, archive, here: zipped(
        nlpl(source, here / "m"), here / "209.zip", "elmo\\"
    ),
    "tar.gz of a folder": lambda source, archive, here: tarred(
        copied(source, here / "m", weights="slovenian-elmo-weights.hdf5"), here / "elmo.tgz", "sl"
    ),
    "checkpoint": lambda source, archive, here: with_files(
        checkpoint(source, here / "m"), "corpus.index"
    ),
    "one checkpoint": lambda source, archive, here: checkpoint(source, here / "m") / "model.ckpt-3",
    "model.tar.gz": lambda source, archive, here: archive,
    "training run": lambda source, archive, here: run_of(archive, here / "m"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_model_in_each_layout(
    layout: str, published: Path, archive: Path, tmp_path: Path, layers: Any
) -> None:
    model = str(LAYOUTS[layout](published, archive, tmp_path))
    assert np.array_equal(ElmoEmbedder(model).embed_sentence(SENTENCE), layers)
    # By each of the names that both arguments may have.
    assert resolve(model) == resolve(model, model)
    assert elmo_model(model)["dim"] == layers.shape[-1]
    expected, found = read_pretrained(str(published)).bilm.state_dict(), read_pretrained(model)
    assert found.source == model
    for name, values in found.bilm.state_dict().items():
        assert torch.equal(values, expected[name]), name


def test_all_files_of_a_language_model(published: Path, archive: Path, tmp_path: Path) -> None:
    folder = copied(published, tmp_path / "m")
    options, weights = folder / "options.json", folder / "weights.hdf5"
    with find_model(str(options)) as files:
        assert files == ModelFiles(str(options), options, weights)
    for name in ("softmax.hdf5", "vocab.txt"):
        (folder / name).touch()
    others = folder / "softmax.hdf5", folder / "vocab.txt"
    for given in (folder, weights):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, weights, *others) and not files.is_run
    # A checkpoint has more than weights.hdf5, but who names a file means that.
    shutil.copytree(REFERENCE / "checkpoint", folder, dirs_exist_ok=True)
    prefix = folder / "model.ckpt-30"
    for given in (folder, prefix, Path(f"{prefix}.index")):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, prefix, None, others[1])
            with files.open() as (_, found):
                assert found.n_words == 50
    with find_model(str(weights)) as files:
        assert files.weights == weights
    assert resolve(str(folder)) == (str(options), str(weights))  # for vectors
    run = run_of(archive, tmp_path / "run")
    with find_model(str(run)) as files, files.open() as (read, found):
        paths = run / "config.json", run / "best.th", None, run / "vocabulary"
        assert files == ModelFiles(str(run), *paths) and files.is_run
        assert found.n_words == read.n_tokens_vocab == 50
    (run / "best.th").unlink()
    with pytest.raises(ValueError, match="needs config.json and weights.th .* or best.th"):
        read_pretrained(str(run))


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    return copied(published, tmp_path / "my_elmo")


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, folder: Path) -> List[str]:
    """The addresses asked for; each gives a file of the random model."""
    asked: List[str] = []

    def cached_path(address: str) -> str:
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
def test_short_names(downloads: List[str], name: str, model: str) -> None:
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
def test_one_of_the_two_files_means_its_model(
    folder: Path, downloads: List[str], prefix: str
) -> None:
    files = []
    for each in ("options.json", "weights.hdf5"):
        (folder / each).rename(folder / f"{prefix}{each}")
        files.append(str(folder / f"{prefix}{each}"))
    if prefix:  # of another model
        (folder / "b_options.json").touch()
        (folder / "b_weights.hdf5").touch()
    for given in (
        *((files[0],), (files[0], DEFAULT_WEIGHT_FILE), (files[1],), (None, files[1])),
        *((DEFAULT_OPTIONS_FILE, files[1]), (f"{folder}/{prefix}options.json", files[1])),
    ):
        assert resolve(*given) == tuple(files)
    assert ElmoTokenEmbedder(weight_file=files[1]).get_output_dim() == 16
    assert not downloads
    other = folder.parent / "other.hdf5"
    shutil.copyfile(files[1], other)
    assert resolve(files[0], str(other)) == (files[0], str(other))


def test_default_options_for_weights_without_options(folder: Path, downloads: List[str]) -> None:
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


def test_an_address_of_an_archive(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: Any
) -> None:
    """The downloaded file has a name of the cache, without an ending."""
    path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "1a2b3c")
    monkeypatch.setattr(elmo_files, "cached_path", lambda name: str(path))
    address = "http://vectors.nlpl.eu/repository/20/209.zip"
    assert np.array_equal(ElmoEmbedder(address).embed_sentence(SENTENCE), layers)
    assert read_pretrained(address).source == address


@pytest.mark.parametrize("value", ["small", BUCKET + "my_options.json"])
def test_offline(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    def cached_path(address: str) -> str:
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr("requests.head", lambda *_, **__: None)
    monkeypatch.setattr("allennlp.common.file_utils.cached_path", cached_path)
    message = f"^cannot download {BUCKET}.*no route to host.*Without a connection"
    with pytest.raises(ConfigurationError, match=message):
        Elmo(value)


def test_without_a_connection_what_was_downloaded_before_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waits"))
    monkeypatch.setattr("allennlp.common.file_utils.CACHE_DIRECTORY", str(tmp_path))
    address = "http://localhost:9/elmo_options.json"
    path = tmp_path / resource_to_filename(address, "an etag")
    path.write_text("{}", encoding="utf-8")
    assert elmo_files.cached_path(address) == str(path)
    assert "as it was downloaded before" in caplog.text


def test_what_is_missing_is_named(folder: Path, published: Path, archive: Path) -> None:
    for given, message in (
        (("smal",), "^there is no smal; nor is it one of the models .*'small'"),
        ((str(folder), "nothing.hdf5"), "^there is no nothing.hdf5"),
        (("nowhere/options.json",), "^there is no nowhere/options.json"),
        ((str(folder.parent),), "there is no weights.hdf5; a model is the folder or archive"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            ElmoEmbedder(*given)
    for name in ("", None):
        with pytest.raises(ValueError, match="no model was named"), find_model(name):
            pass
    with pytest.raises(ConfigurationError, match='no model was named.*"tiny"'):
        Elmo(None)
    weights = folder / "weights.hdf5"
    weights.unlink()
    (folder / "model.tar.gz").touch()  # as elmo-import writes it
    for use in (ElmoEmbedder, read_pretrained):
        with pytest.raises(FileNotFoundError, match=f"is {folder}/model.tar.gz meant?"):
            use(str(folder))
    (folder / "text").write_text("A sentence .\n")
    with pytest.raises(ValueError, match="text: there is no weights.hdf5 beside it") as error:
        ElmoEmbedder(str(folder / "text"))
    assert "\n" not in str(error.value)


def test_errors_name_the_archive(published: Path, tmp_path: Path, downloads: List[str]) -> None:
    folder = nlpl(published, tmp_path / "m")
    (folder / "model.hdf5").write_bytes(b"text")
    path = zipped(folder, tmp_path / "209.zip")
    with pytest.raises(ValueError, match=f"^{path}/model.hdf5: not an HDF5 file"):
        ElmoEmbedder(str(path))
    (folder / "model.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match="209.zip: there is no weights.hdf5; a model is"):
        ElmoEmbedder(str(zipped(folder, path)))
    with pytest.raises(ValueError, match="^small: has no vocabulary"):
        import_model("small", tmp_path / "imported")


class TestBundledModel:
    def test_by_its_name(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
    ) -> None:
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

    def test_size_and_card(self) -> None:
        names = {path.name for path in BUNDLED_MODEL.iterdir()}
        assert names == {"options.json", "weights.hdf5", "README.md"}
        assert sum(path.stat().st_size for path in BUNDLED_MODEL.iterdir()) <= 6 * 10**6
        with find_model("tiny") as files, files.open() as (options, _):
            facts = facts_of(options, files.weights)
        card = (BUNDLED_MODEL / "README.md").read_text(encoding="utf-8")
        assert all(f"| {key} | {value} |" in card for key, value in facts.items())
        assert "to be filled in" not in card and "CC BY-SA" in card
