"""
A model is the same under every name that it can have: folders and archives in the layouts of all
publishers, checkpoints, training runs and short names.
"""

import gzip
import json
import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict

import h5py
import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules.token_embedders import TokenEmbedder

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.benchmark.configuration import _Digests
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles, find_model, local_files
from allennlp_elmo_plugin.patches.jsonnet import elmo_model
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import read_arrays, read_files, refused, write_random_elmo

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
    "zip with config.json": lambda source, archive, here: zipped(
        with_files(copied(source, here / "m", weights="sl.hdf5"), "config.json"), here / "sl.zip"
    ),
    "index": lambda source, archive, here: with_files(
        copied(source, here / "m"), "corpus.index", "corpus.data"
    ),
    "zip with an index": lambda source, archive, here: zipped(
        with_files(copied(source, here / "m"), "corpus.index"), here / "sl.zip"
    ),
    "checkpoint and index": lambda source, archive, here: with_files(
        checkpoint(source, here / "m"), "corpus.index"
    ),
    "zip": lambda source, archive, here: zipped(nlpl(source, here / "m"), here / "209.zip"),
    "stored zip": lambda source, archive, here: zipped(
        nlpl(source, here / "m"), here / "209", method=zipfile.ZIP_STORED
    ),
    "zip of a folder": lambda source, archive, here: zipped(
        nlpl(source, here / "m"), here / "209.zip", "209/", **MAC
    ),
    "zip of Windows": lambda source, archive, here: windows_zip(
        nlpl(source, here / "m"), here / "209.zip"
    ),
    "tar.gz of a folder": lambda source, archive, here: tarred(
        copied(source, here / "m", weights="slovenian-elmo-weights.hdf5"), here / "elmo.tgz", "sl"
    ),
    "tar.gz of a checkpoint": lambda source, archive, here: tarred(
        checkpoint(source, here / "m"), here / "checkpoint.tar.gz", "checkpoint"
    ),
    "float64": lambda source, archive, here: with_dtype(source, here / "m", "float64"),
    "checkpoint": lambda source, archive, here: checkpoint(source, here / "m"),
    "one checkpoint": lambda source, archive, here: checkpoint(source, here / "m") / "model.ckpt-3",
    "zip of a checkpoint": lambda source, archive, here: zipped(
        checkpoint(source, here / "m"), here / "checkpoint.zip", "checkpoint/"
    ),
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


ZIPS = ("zip", "zip of a folder")


@pytest.fixture(params=ZIPS)
def archive_of_nlpl(request: Any, published: Path, archive: Path, tmp_path: Path) -> str:
    return str(LAYOUTS[request.param](published, archive, tmp_path))


class TestEverywhere:
    """All that takes a model takes a zip archive."""

    def test_modules(self, archive_of_nlpl: str, layers: Any) -> None:
        elmo = Elmo(archive_of_nlpl, dropout=0.0)
        ids = batch_to_ids([SENTENCE])
        found = elmo(ids)["elmo_representations"][0]
        config = {"options_file": archive_of_nlpl, "dropout": 0.0}
        for kind in ("elmo_token_embedder", "elmo_multi_token_embedder"):
            embedder = TokenEmbedder.from_params(Params({"type": kind, **config}))
            np.testing.assert_array_equal(
                embedder(ids)[..., : found.size(-1)].detach(), found.detach()
            )
        from_params = Elmo.from_params(Params(dict(config)))
        np.testing.assert_array_equal(
            from_params(ids)["elmo_representations"][0].detach(), found.detach()
        )

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

    def test_digests_of_a_benchmark(self, archive_of_nlpl: str, published: Path) -> None:
        digests = _Digests()
        whole = digests.of_path(Path(archive_of_nlpl))
        assert digests.without_paths({"options_file": archive_of_nlpl}) == {"options_file": whole}
        assert local_files(archive_of_nlpl, None) == [archive_of_nlpl]
        assert local_files(str(published)) == [*ElmoFiles.find(str(published))]

    def test_digests_of_folders_without_the_two_files(
        self, published: Path, tmp_path: Path
    ) -> None:
        folder = checkpoint(published, tmp_path / "m[1]")
        (folder / "options.json").rename(folder / "my_options.json")
        names = [str(folder), str(folder / "model.ckpt-3"), str(folder / "model.ckpt-3.index")]
        before = [_Digests().of_elmo(name) for name in names]
        assert before[0] != before[1] == before[2] == _Digests().of_elmo(names[1])
        for file in ("model.ckpt-3.index", "model.ckpt-3.data-00000-of-00001", "my_options.json"):
            with open(folder / file, "ab") as content:
                content.write(b"changed")
            after = [_Digests().of_elmo(name) for name in names]
            assert all(map(str.__ne__, before, after)), file
            before = after
        config = {"options_file": names[1], "weight_file": None}
        assert _Digests().without_paths(config) == {**config, "options_file": before[1]}
        (folder / "model.ckpt-3.best.index").touch()  # of another one
        assert _Digests().of_elmo(names[1]) == before[1]

    def test_digests_of_a_training_run_with_layers_in_it(self, tmp_path: Path) -> None:
        for name in ("config.json", "best.th", "options.json", "layers.hdf5"):
            (tmp_path / name).touch()
        assert local_files(str(tmp_path)) == [str(tmp_path)]
        (tmp_path / "other.hdf5").touch()
        assert local_files(f"{tmp_path}/") == [str(tmp_path)]

    def test_digests_of_names(
        self, archive_of_nlpl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "small").mkdir()
        (tmp_path / "small" / "settings.json").touch()
        assert _Digests().of_elmo("small") == "small"
        assert _Digests().of_elmo(f"{archive_of_nlpl}/") == _Digests().of_elmo(archive_of_nlpl)
        (tmp_path / "tokens").touch()
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "v.txt").write_text("the 1\n", encoding="utf-8")
        found = _Digests().without_paths({"namespace": "tokens", "pretrained_file": "~/v.txt"})
        digest = _Digests().of_path(tmp_path / "v.txt")
        assert found == {"namespace": "tokens", "pretrained_file": digest}

    def test_two_files_for_archives_of_task_models(
        self, archive_of_nlpl: str, published: Path, tmp_path: Path
    ) -> None:
        made = ElmoFiles.find(archive_of_nlpl).as_two_files(tmp_path)
        assert made == (str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5"))
        expected, found = (read_arrays(f / "weights.hdf5") for f in (published, tmp_path))
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
        assert ElmoFiles.find(str(published)).as_two_files(tmp_path) == ElmoFiles.find(
            str(published)
        )


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

    def test_several_models_in_a_folder(self, published: Path, tmp_path: Path) -> None:
        folder = copied(published, tmp_path / "m", options="a_options.json", weights="a.hdf5")
        shutil.copy(folder / "a.hdf5", folder / "b.hdf5")
        with pytest.raises(ConfigurationError, match="has a.hdf5, b.hdf5, so it is not clear"):
            ElmoEmbedder(str(folder))
        (folder / "a_options.json").rename(folder / "options.json")
        with pytest.raises(ConfigurationError, match="that are meant weights.hdf5 or model.hdf5$"):
            ElmoEmbedder(str(folder))
        (folder / "options.json").rename(folder / "a_options.json")
        # The one of the options' name, or of the usual one, is meant.
        shutil.copy(folder / "a.hdf5", folder / "a_weights.hdf5")
        assert ElmoFiles.find(str(folder)).weight_file == str(folder / "a_weights.hdf5")
        shutil.copy(folder / "a_options.json", folder / "b_options.json")
        with pytest.raises(ConfigurationError, match="has a_options.json, b_options.json"):
            ElmoEmbedder(str(folder))
        shutil.copy(folder / "a_options.json", folder / "options.json")
        shutil.copy(folder / "a.hdf5", folder / "weights.hdf5")
        assert ElmoFiles.find(str(folder)).weight_file == str(folder / "weights.hdf5")

    def test_several_models_in_an_archive(self, published: Path, tmp_path: Path) -> None:
        for name in ("a", "b"):
            nlpl(published, tmp_path / "m" / name)
        path = zipped(tmp_path / "m", tmp_path / "both.zip")
        with pytest.raises(ConfigurationError, match="both.zip: has several models, .* a, b"):
            ElmoEmbedder(str(path))

    def test_weights_besides_an_archive(self, published: Path, tmp_path: Path) -> None:
        path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "209.zip")
        with pytest.raises(ConfigurationError, match="leave out the weight_file"):
            Elmo(str(path), str(published / "weights.hdf5"))

    def test_a_checkpoint_with_dumped_weights_elsewhere(
        self, published: Path, tmp_path: Path, layers: Any
    ) -> None:
        """The two files as bilm-tf leaves them."""
        folder = checkpoint(published, tmp_path / "m")
        embedder = ElmoEmbedder(str(folder), str(published / "weights.hdf5"))
        assert np.array_equal(embedder.embed_sentence(SENTENCE), layers)

    def test_what_is_no_model(self, published: Path, tmp_path: Path, capsys: Any) -> None:
        folder = tmp_path / "m"
        folder.mkdir()
        for name in ("encoder.pkl", "token_embedder.pkl", "config.json", "char.dic"):
            (folder / name).write_bytes(b"x")
        path = zipped(folder, tmp_path / "136.zip")
        for model in (path, folder):
            with pytest.raises(
                ConfigurationError, match=f"{model}: is a model of ELMoForManyLangs"
            ):
                ElmoEmbedder(str(model))
        for name in ("encoder.pkl", "config.json"):
            (folder / name).unlink()
        (folder / "OPTIONS.JSON").write_bytes(b"{}")
        zipped(folder, path)
        with pytest.raises(
            ConfigurationError,
            match="136.zip is not the archive .* it has OPTIONS.JSON, char.dic, token_embedder.pkl",
        ):
            ElmoEmbedder(str(path))
        (folder / "OPTIONS.JSON").unlink()
        (folder / "options.json").write_text("{}", encoding="utf-8")
        zipped(folder, path)
        with pytest.raises(
            FileNotFoundError, match="136.zip: there is neither a checkpoint .* nor"
        ):
            ElmoEmbedder(str(path))
        (tmp_path / "in.txt").write_text("A sentence\n", encoding="utf-8")
        missing = tmp_path / "210.zip"
        message = refused(
            capsys,
            *("elmo", tmp_path / "in.txt", tmp_path / "out.hdf5", "--all"),
            *("--options-file", missing),
        )
        assert f"there is no {missing}; nor is it one of the models" in message

    def test_errors_name_the_archive(self, published: Path, tmp_path: Path) -> None:
        folder = nlpl(published, tmp_path / "m")
        (folder / "model.hdf5").write_bytes(b"text")
        path = zipped(folder, tmp_path / "209.zip")
        with pytest.raises(ConfigurationError) as error:
            ElmoEmbedder(str(path))
        assert str(error.value).startswith(f"{path}/model.hdf5: not an HDF5 file")
        (folder / "options.json").write_text("{", encoding="utf-8")
        shutil.copy(published / "weights.hdf5", folder / "model.hdf5")
        with pytest.raises(ConfigurationError, match=re.escape(f"{path}/options.json: not a JSON")):
            ElmoEmbedder(str(zipped(folder, path)))


def member(name: str, mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr, made.compress_type = mode << 16, method
    return made


class TestZipsFromStrangers:
    def refuses(self, path: Path, message: str) -> None:
        with pytest.raises(ValueError, match=message) as error, find_model(str(path)):
            pass
        assert str(path) in str(error.value) and str(error.value).isprintable()

    @pytest.mark.parametrize(
        "made, message",
        [
            (member("../outside.hdf5"), "lies or links outside"),
            (member("/tmp/outside.hdf5"), "lies or links outside"),
            (member("a/../../options.json"), "lies or links outside"),
            (member("..\\outside.hdf5"), "lies or links outside"),
            (member("other.txt/../../x"), "lies or links outside"),
            (member("model.hdf5", 0o120777), "is a link or a folder"),
            (member("model.hdf5", 0o010666), "is a link or a folder"),
            (member("x.hdf5", method=zipfile.ZIP_BZIP2), "compressed in a way that is not read"),
            (member("x.hdf5", method=zipfile.ZIP_LZMA), "compressed in a way that is not read"),
            (member("x/./options.json"), "has 'x/options.json' twice"),
            (member("\x1b[31m/../../x"), "lies or links outside"),
        ],
        ids=lambda value: repr(getattr(value, "filename", "")),
    )
    def test_members(self, made: zipfile.ZipInfo, message: str, tmp_path: Path) -> None:
        path = tmp_path / "stranger.zip"
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("x/options.json", b"{}")
            packed.writestr(made, b"")
        before = sorted(tmp_path.parent.rglob("*"))
        self.refuses(path, message)
        assert sorted(tmp_path.parent.rglob("*")) == before

    def test_bombs(self, tmp_path: Path) -> None:
        path = tmp_path / "stranger.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("options.json", b"{}")
            packed.writestr("model.hdf5", bytes(2**26 + 1))
        self.refuses(path, "unpacks to more than 100 times its size")

    def test_many_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("allennlp_elmo_plugin.files.model_archive._MAX_MEMBERS", 3)
        path = tmp_path / "stranger.zip"
        with zipfile.ZipFile(path, "w") as packed:
            for number in range(4):
                packed.writestr(f"{number}.txt", b"")
        self.refuses(path, "has more than 3 files")

    def test_cut_off_and_damaged(self, published: Path, tmp_path: Path) -> None:
        path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "stranger.zip")
        sound = path.read_bytes()
        for size in (0, 1, 30, len(sound) // 2, len(sound) - 30):
            path.write_bytes(sound[:size])
            self.refuses(path, "is not a zip archive, or one cut off")
        middle = len(sound) // 2  # in the weights
        path.write_bytes(sound[:middle] + bytes(20) + sound[middle + 20 :])
        self.refuses(path, "is not a zip archive, or one cut off")

    def test_encrypted(self, published: Path, tmp_path: Path) -> None:
        path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "stranger.zip")
        data = bytearray(path.read_bytes())
        # The flags of a member, in its two headers.
        for start, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            for found in re.finditer(re.escape(start), bytes(data)):
                data[found.start() + place] |= 1
        path.write_bytes(data)
        self.refuses(path, ": '.*' in it is encrypted; unpack it with its password, and give the")

    def test_nothing_stays(self, published: Path, tmp_path: Path, monkeypatch: Any) -> None:
        path = zipped(nlpl(published, tmp_path / "m"), tmp_path / "209.zip")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        (tmp_path / "temporary").mkdir()
        with find_model(str(path)) as folder:
            names = {file.name for file in folder.iterdir()}
            assert names == {"options.json", "model.hdf5", "vocab.txt"}
        ElmoEmbedder(str(path))
        assert not list((tmp_path / "temporary").iterdir())


def test_counts_in_a_vocabulary(published: Path, tmp_path: Path) -> None:
    folder = copied(published, tmp_path / "m")
    words = VOCABULARY.read_text("utf-8").split()
    lines = [f"{word}\t{1000 - number}\n" for number, word in enumerate(words)]
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")
    import_model(folder, tmp_path / "imported")
    assert read_pretrained(str(tmp_path / "imported" / "model.tar.gz")).words == words
