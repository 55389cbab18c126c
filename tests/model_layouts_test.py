"""
A model is the same under every name that it can have: folders and archives in the layouts of all
publishers, checkpoints, training runs and short names.
"""

import gzip
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict

import h5py
import numpy as np
import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.modules.configs import elmo_model
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import read_arrays, read_files, write_random_elmo

VOCABULARY = REFERENCE / "data" / "vocab.txt"
SENTENCE = ["the", "naïve", "東京"]
BIG = "elmo_2x4096_512_2048cnn_2xhighway_"


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
    options["char_cnn"]["n_characters"] = 261
    options.update(unroll_steps=20, batch_size=128, n_train_tokens=768648884, n_tokens_vocab=50)
    (target / "options.json").write_text(json.dumps(options), encoding="utf-8")
    (target / "meta.json").write_text('{"id": 209}', encoding="utf-8")
    (target / "README").write_text("A model\n", encoding="utf-8")
    return target


def zipped(
    folder: Path, target: Path, within: str = "", method: int = zipfile.ZIP_DEFLATED, **more: bytes
) -> Path:
    with zipfile.ZipFile(target, "w", method) as packed:
        for name, data in read_files(folder).items():
            packed.writestr(within + name, data)
        for name, data in more.items():
            packed.writestr(name, data)
    return target


def tarred(folder: Path, target: Path, within: str) -> Path:
    with tarfile.open(target, "w:gz") as packed:
        packed.add(folder, within)
    return target


def with_dtype(source: Path, target: Path, dtype: str) -> Path:
    copied(source, target)
    with h5py.File(target / "weights.hdf5", "w") as file:
        for name, values in read_arrays(source / "weights.hdf5").items():
            file.create_dataset(name, data=values.astype(dtype))
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


def windows_zip(folder: Path, target: Path) -> Path:
    """With backslashes, as some programs write them."""
    return zipped(folder, target, within="elmo\\")


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
    "other names": lambda source, archive, here: copied(
        source, here / "m", options="my_options.json", weights="slovenian-elmo.hdf5"
    ),
    "config.json": lambda source, archive, here: with_files(
        copied(source, here / "m", weights="slovenian-elmo.hdf5"), "config.json"
    ),
    "index": lambda source, archive, here: with_files(
        copied(source, here / "m"), "corpus.index", "corpus.data"
    ),
    "checkpoint and index": lambda source, archive, here: with_files(
        checkpoint(source, here / "m"), "corpus.index"
    ),
    "zip": lambda source, archive, here: zipped(nlpl(source, here / "m"), here / "209.zip"),
    "zip of a folder": lambda source, archive, here: zipped(
        nlpl(source, here / "m"), here / "209.zip", "209/", **MAC
    ),
    "zip of Windows": lambda source, archive, here: windows_zip(
        nlpl(source, here / "m"), here / "209.zip"
    ),
    "tar.gz of a folder": lambda source, archive, here: tarred(
        copied(source, here / "m", weights="slovenian-elmo-weights.hdf5"), here / "elmo.tgz", "sl"
    ),
    "float64": lambda source, archive, here: with_dtype(source, here / "m", "float64"),
    "checkpoint": lambda source, archive, here: checkpoint(source, here / "m"),
    "one checkpoint": lambda source, archive, here: checkpoint(source, here / "m") / "model.ckpt-3",
    "model.tar.gz": lambda source, archive, here: archive,
    "training run": lambda source, archive, here: run_of(archive, here / "m"),
}


@pytest.fixture(params=LAYOUTS)
def model(request: Any, published: Path, archive: Path, tmp_path: Path) -> str:
    """A path to the model in one of the layouts."""
    return str(LAYOUTS[request.param](published, archive, tmp_path))


def test_same_layers(model: str, layers: Any) -> None:
    assert np.array_equal(ElmoEmbedder(model).embed_sentence(SENTENCE), layers)
    # By each of the names that both arguments may have.
    assert ElmoFiles.find(model) == ElmoFiles.find(model, model)
    assert elmo_model(model)["dim"] == layers.shape[-1]


def test_same_parameters(model: str, published: Path) -> None:
    expected = read_pretrained(str(published)).bilm.state_dict()
    found = read_pretrained(model)
    assert found.source == model
    for name, values in found.bilm.state_dict().items():
        assert (values == expected[name]).all(), name


@pytest.fixture
def archive_of_nlpl(published: Path, archive: Path, tmp_path: Path) -> str:
    return str(LAYOUTS["zip of a folder"](published, archive, tmp_path))


class TestEverywhere:
    """All that takes a model takes a zip archive."""

    def test_language_models(self, archive_of_nlpl: str, published: Path, tmp_path: Path) -> None:
        """Training starts from one, and `elmo-import` and `elmo-export` convert it."""
        import_model(archive_of_nlpl, tmp_path / "imported")
        vocab = read_pretrained(str(tmp_path / "imported" / "model.tar.gz"))
        assert vocab.words == VOCABULARY.read_text("utf-8").split()
        (tmp_path / "vocabulary").mkdir()
        shutil.copy(VOCABULARY, tmp_path / "vocabulary" / "lm_tokens.txt")
        (tmp_path / "vocabulary" / "non_padded_namespaces.txt").write_text("lm_tokens\n")
        made = BidirectionalLanguageModel(
            Vocabulary.from_files(str(tmp_path / "vocabulary")), pretrained_file=archive_of_nlpl
        )
        expected = read_pretrained(str(published)).bilm.state_dict()
        assert all((made.bilm.state_dict()[name] == expected[name]).all() for name in expected)
        export(archive_of_nlpl, tmp_path / "exported")
        written = read_arrays(tmp_path / "exported" / "weights.hdf5")
        for name, values in read_arrays(published / "weights.hdf5").items():
            assert np.array_equal(written[name], values), name


def test_an_address(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: Any
) -> None:
    """The downloaded file has a name of the cache, without an ending."""
    path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "1a2b3c")
    address = "http://vectors.nlpl.eu/repository/20/209.zip"
    monkeypatch.setattr(
        "allennlp_elmo_plugin.modules.elmo_files.cached_path",
        lambda name: str(path) if name == address else name,
    )
    assert np.array_equal(ElmoEmbedder(address).embed_sentence(SENTENCE), layers)
    assert read_pretrained(address).source == address


class TestWhatIsNotClear:
    def test_an_elmo_in_the_folder_of_a_run(
        self, published: Path, archive: Path, tmp_path: Path
    ) -> None:
        """The run may be that of a task model which uses the ELMo."""
        folder = run_of(archive, tmp_path / "run")
        for name in ("options.json", "weights.hdf5"):
            shutil.copy(published / name, folder)
        assert ElmoFiles.find(str(folder)).weight_file == str(folder / "weights.hdf5")

    def test_weights_besides_an_archive(self, published: Path, tmp_path: Path) -> None:
        path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "209.zip")
        with pytest.raises(
            ConfigurationError, match="is the archive of a whole model; give it alone"
        ):
            Elmo(str(path), str(published / "weights.hdf5"))

    def test_a_checkpoint_with_dumped_weights_elsewhere(
        self, published: Path, tmp_path: Path, layers: Any
    ) -> None:
        """The two files as bilm-tf leaves them."""
        folder = checkpoint(published, tmp_path / "m")
        embedder = ElmoEmbedder(str(folder), str(published / "weights.hdf5"))
        assert np.array_equal(embedder.embed_sentence(SENTENCE), layers)

    def test_errors_name_the_archive(self, published: Path, tmp_path: Path) -> None:
        folder = nlpl(published, tmp_path / "m")
        (folder / "model.hdf5").write_bytes(b"text")
        path = zipped(folder, tmp_path / "209.zip")
        with pytest.raises(ConfigurationError) as error:
            ElmoEmbedder(str(path))
        assert str(error.value).startswith(f"{path}/model.hdf5: not an HDF5 file")
        (folder / "model.hdf5").unlink()
        with pytest.raises(FileNotFoundError, match="209.zip: there is neither a checkpoint"):
            ElmoEmbedder(str(zipped(folder, path)))
