import json
import shutil
from pathlib import Path
from typing import Any, List

import numpy
import pytest
import requests
import torch
from allennlp.common.checks import ConfigurationError
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.modules import ElmoTokenEmbedder, elmo_files
from allennlp_elmo_plugin.modules.configs import elmo_model
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.modules.elmo_files import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    ElmoFiles,
    ModelFiles,
    elmo_sections,
    find_model,
    local_files,
)
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_arrays, write_random_elmo

BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my_elmo"
    folder.mkdir()
    write_random_elmo(folder)
    return folder


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, folder: Path) -> List[str]:
    """The addresses asked for; each gives a file of the random model."""
    asked: List[str] = []

    def cached_path(address: str) -> str:
        if "://" not in address:
            return address
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
    addresses = [f"{BUCKET}{model}/elmo_{model}_{end}" for end in ("options.json", "weights.hdf5")]
    for arguments in ((name, name), (name,), (name, DEFAULT_WEIGHT_FILE)):
        ElmoFiles.find(*arguments)
        assert downloads == addresses
        downloads.clear()


def addresses_of(name: str) -> List[str]:
    return [elmo_files._published(name, end) for end in ("options.json", "weights.hdf5")]


@pytest.mark.parametrize("use", [Elmo, ElmoTokenEmbedder, ElmoCharacterEncoder])
def test_all_take_them(downloads: List[str], use: Any) -> None:
    use("small", "small")
    assert downloads == addresses_of("small")


def test_local_files(folder: Path, tmp_path: Path) -> None:
    """Those that a digest of the model is made of."""
    files = list(ElmoFiles.find(str(folder)))
    assert local_files(str(folder)) == local_files(files[0], files[1]) == files
    assert [Path(file).parent.name for file in local_files("tiny")] == ["tiny", "tiny"]
    assert local_files("small") == local_files("https://x/options.json") == []
    assert local_files("nowhere") == local_files(None) == []
    for name in ("a[1].index", "a[1].data-00000-of-00001", "a[1].best.index"):
        (folder / name).touch()
    expected = [str(folder / name) for name in ("a[1].index", "a[1].data-00000-of-00001")]
    for name in ("a[1]", "a[1].index"):
        assert local_files(str(folder / name)) == [*expected, files[0]]
    for name in ("config.json", "best.th", "options.json", "layers.hdf5", "other.hdf5"):
        (tmp_path / name).touch()
        if name != "config.json":
            assert local_files(f"{tmp_path}/") == [str(tmp_path)]


def test_two_files_of_a_model_in_others(folder: Path, tmp_path: Path) -> None:
    """For archives of task models."""
    archive = shutil.make_archive(str(tmp_path / "x"), "zip", folder)
    made = ElmoFiles.find(archive).as_two_files(tmp_path)
    assert made == (str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5"))
    expected, found = (read_arrays(each / "weights.hdf5") for each in (folder, tmp_path))
    assert all(numpy.array_equal(found[name], expected[name]) for name in expected)
    files = ElmoFiles.find(str(folder))
    assert files.as_two_files(tmp_path / "nowhere") == files


def test_all_files_of_a_language_model(folder: Path) -> None:
    options, weights = folder / "options.json", folder / "weights.hdf5"
    with find_model(str(options)) as files:
        assert files == ModelFiles(str(options), options, weights)
    for name in ("softmax.hdf5", "vocab.txt"):
        (folder / name).touch()
    others = folder / "softmax.hdf5", folder / "vocab.txt"
    for given in (folder, weights):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, weights, *others) and not files.is_run
    shutil.copytree(REFERENCE / "checkpoint", folder, dirs_exist_ok=True)
    prefix = folder / "model.ckpt-30"
    for given in (folder, prefix, f"{prefix}.index"):
        with find_model(str(given)) as files:
            assert files == ModelFiles(str(given), options, prefix, None, others[1])
            with files.open() as (_, found):
                assert found.n_words == 50


def test_all_files_of_a_training_run(tmp_path: Path) -> None:
    lstm = {"dim": 6, "projection_dim": 4}
    bilm = BiLm(BiLmOptions.from_dict({"lstm": lstm, "n_tokens_vocab": 7}))
    model = {"type": "bidirectional_lm", "options": {"lstm": lstm}, "dropout": 0.3}
    config = json.dumps({"model": {**model, "num_samples": 5}})
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match="needs config.json and weights.th .* or best.th"):
        read_pretrained(str(tmp_path))
    state = torch.nn.ModuleDict({"bilm": bilm, "softmax": Softmax(7, 4)}).state_dict()
    torch.save(state, tmp_path / "best.th")
    with find_model(str(tmp_path)) as files, files.open() as (options, weights):
        paths = (tmp_path / name for name in ("config.json", "best.th"))
        assert files == ModelFiles(str(tmp_path), *paths, None, tmp_path / "vocabulary")
        assert files.is_run and weights.n_words == options.n_tokens_vocab == 7
        assert (options.dropout, options.n_negative_samples_batch) == (0.3, 5)
    model["dropout"] = 2.0
    (tmp_path / "config.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match='config.json, model.options: "dropout" must be'):
        with ElmoFiles.find(str(tmp_path)).open():
            pass


def test_a_folder_alone(folder: Path) -> None:
    expected = (str(folder / "options.json"), str(folder / "weights.hdf5"))
    assert ElmoFiles.find(str(folder)) == expected
    assert ElmoFiles.find(str(folder), str(folder)) == expected
    # Users of the defaults name the folder once.
    assert ElmoEmbedder(str(folder)).elmo_bilm.num_layers == 3
    assert ElmoTokenEmbedder(str(folder)).get_output_dim() == 16
    other = folder.parent / "other.hdf5"
    shutil.copyfile(folder / "weights.hdf5", other)
    assert ElmoFiles.find(str(folder), str(other)).weight_file == str(other)


def test_what_lies_here_comes_before_short_names(
    monkeypatch: pytest.MonkeyPatch, folder: Path, downloads: List[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "small").mkdir()  # of something else
    ElmoFiles.find("small")
    assert len(downloads) == 2
    write_random_elmo(folder.parent / "small")
    assert ElmoFiles.find("small").options_file.endswith("small/options.json")
    assert len(downloads) == 2


@pytest.mark.parametrize("file", ["weights.hdf5", "model.hdf5", "checkpoint", "a.ckpt-1.index"])
def test_no_other_model_for_one_with_missing_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, downloads: List[str], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / file).touch()
    with pytest.raises((FileNotFoundError, ConfigurationError), match="small/"):
        Elmo("small")
    assert not downloads


def test_errors_do_not_name_temporary_folders(downloads: List[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="^small: has no vocabulary"):
        import_model("small", tmp_path / "imported")


class TestOneOfTheTwoFiles:
    """One file means the model that it belongs to, everywhere; nothing is downloaded."""

    @pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
    @pytest.mark.parametrize("prefix", ["", "a_"])
    def test_the_other_is_beside_it(
        self, folder: Path, downloads: List[str], name: str, prefix: str
    ) -> None:
        files = []
        for each in ("options.json", "weights.hdf5"):
            (folder / each).rename(folder / f"{prefix}{each}")
            files.append(str(folder / f"{prefix}{each}"))
        if prefix:  # of another model
            (folder / "b_options.json").touch()
            (folder / "b_weights.hdf5").touch()
        path = str(folder / f"{prefix}{name}")
        assert ElmoFiles.find(path) == tuple(files)
        assert ElmoFiles.find(path, DEFAULT_WEIGHT_FILE) == tuple(files)
        if name == "weights.hdf5":
            assert ElmoFiles.find(None, path) == tuple(files)
            assert ElmoFiles.find(DEFAULT_OPTIONS_FILE, path) == tuple(files)
        given = {"weight_file" if name == "weights.hdf5" else "options_file": path}
        assert ElmoEmbedder(**given).elmo_bilm.get_output_dim() == 16
        assert ElmoTokenEmbedder(**given).get_output_dim() == 16
        assert not downloads
        if not prefix:
            assert elmo_model(path)["weight_file"] == files[1]
            assert read_pretrained(path).bilm.get_output_dim() == 16
        assert local_files(path) == files

    @pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
    def test_a_checkpoint_is_beside_it(self, folder: Path, name: str) -> None:
        """A folder means its checkpoint; who names another file means that."""
        for ending in ("index", "data-00000-of-00001"):
            (folder / f"model.ckpt-1.{ending}").write_text("of another model", encoding="utf-8")
        assert read_pretrained(str(folder / name)).bilm.get_output_dim() == 16

    def test_addresses(self, downloads: List[str]) -> None:
        options, weights = addresses_of("small")
        for arguments in ((options,), (options, DEFAULT_WEIGHT_FILE), (None, weights), (weights,)):
            ElmoFiles.find(*arguments)
            assert sorted(downloads) == [options, weights]
            downloads.clear()

    def test_nothing_beside(self, folder: Path, downloads: List[str]) -> None:
        (folder / "weights.hdf5").rename(folder.parent / "weights.hdf5")
        with pytest.raises(ConfigurationError, match="options.json' needs its weight_file"):
            ElmoEmbedder(str(folder / "options.json"))
        weights = str(folder.parent / "weights.hdf5")
        with pytest.raises(ConfigurationError, match="weights.hdf5' needs its options_file"):
            ElmoEmbedder(weight_file=weights)
        assert not downloads
        # The defaults of AllenNLP's token embedder, for own weights of the published size.
        ElmoFiles.find(DEFAULT_OPTIONS_FILE, weights)
        assert downloads == [DEFAULT_OPTIONS_FILE]

    def test_default_options_for_an_address(
        self, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        def cached_path(address: str) -> str:
            if address == "https://mine.org/options.json":
                raise FileNotFoundError(address)
            return address

        monkeypatch.setattr(elmo_files, "cached_path", cached_path)
        weights = "https://mine.org/weights.hdf5"
        found = ElmoFiles.find(DEFAULT_OPTIONS_FILE, weights)
        assert found == (DEFAULT_OPTIONS_FILE, weights)
        assert caplog.messages == [
            f"https://mine.org/options.json: no such options; using {DEFAULT_OPTIONS_FILE}"
        ]
        with pytest.raises(ConfigurationError, match="mine.org/options.json"):
            ElmoFiles.find(None, weights)

    def test_a_wrong_path(self, folder: Path) -> None:
        for name in ("nowhere/options.json", "nowhere/weights.hdf5"):
            with pytest.raises(FileNotFoundError, match=f"there is no {name}"):
                ElmoEmbedder(name)


def test_nothing_there(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="options_file 'smal'.*'small'"):
        ElmoFiles.find("smal", str(folder))
    with pytest.raises(FileNotFoundError, match="weight_file.*nothing.hdf5"):
        ElmoFiles.find(str(folder), "nothing.hdf5")
    (folder / "weights.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match="the folder of an ELMo has .* weights.hdf5$"):
        ElmoFiles.find(str(folder))
    with pytest.raises(FileNotFoundError, match=f"weights.hdf5; is {folder} meant?"):
        ElmoFiles.find(str(folder.parent))
    (folder / "x.zip").touch()
    with pytest.raises(FileNotFoundError, match=f"is {folder}/x.zip meant?"):
        ElmoFiles.find(str(folder))
    (folder / "model.tar.gz").touch()  # as elmo-import writes it
    with pytest.raises(FileNotFoundError, match=f"is {folder}/model.tar.gz meant?"):
        ElmoFiles.find(str(folder))
    (folder / "options.json").unlink()
    with pytest.raises(FileNotFoundError, match=f"is {folder}/model.tar.gz meant?"):
        read_pretrained(str(folder))


@pytest.mark.parametrize("name", ["text", "my.json", "options.json"])
def test_files_that_are_no_models(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"A sentence .\n")
    message = f"{name}' needs its weight_file: .* A model is the folder or archive"
    with pytest.raises(ConfigurationError, match=message) as caught:
        ElmoEmbedder(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_options_of_any_name(folder: Path) -> None:
    other = folder / "settings"
    other.write_bytes(b"\xef\xbb\xbf\n" + (folder / "options.json").read_bytes())
    with ElmoFiles.find(str(other), str(folder / "weights.hdf5")).open() as (options, _):
        assert options


def test_an_empty_name() -> None:
    with pytest.raises(ConfigurationError, match="no model was named"):
        ElmoFiles.find("")
    with pytest.raises(ValueError, match="no model was named"), find_model(""):
        pass


@pytest.mark.parametrize("value", ["small", BUCKET + "my_options.json"])
def test_offline(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    def cached_path(address: str) -> str:
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr(elmo_files, "cached_path", cached_path)
    with pytest.raises(ConfigurationError) as caught:
        ElmoFiles.find(value, value)
    message = str(caught.value)
    assert f"options_file {value!r}: cannot download {BUCKET}" in message
    assert "no route to host" in message and "Without a connection" in message


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


def test_an_archive_as_weights(folder: Path) -> None:
    archive = shutil.make_archive(str(folder / "x"), "zip", folder)
    assert ElmoFiles.find(None, archive) == (archive, archive)
    message = "weight_file '.*x.zip' is the archive of a whole model; give it alone"
    with pytest.raises(ConfigurationError, match=message):
        ElmoFiles.find(str(folder / "options.json"), archive)


def test_exchanged(folder: Path) -> None:
    files = ElmoFiles.find(str(folder))
    with pytest.raises(ConfigurationError, match="exchange options_file and weight_file"):
        Elmo(files.weight_file, files.options_file, 1)


@pytest.mark.parametrize(
    "section, found",
    [
        ({"type": "elmo_token_embedder"}, True),
        ({"type": "elmo_token_embedder", "options_file": "small"}, True),
        ({"type": "elmo_token_embedder", "options_file": None}, False),
        ({"options_file": "a", "weight_file": "b"}, True),  # an argument of the class `Elmo`
        ({"options_file": "small"}, True),
        ({"type": "my_elmo", "options_file": "a", "weight_file": "b"}, True),
        # The options of a language model, which has no published weights.
        ({"type": "bidirectional_lm", "options_file": "a", "num_samples": 20}, False),
        ({"type": "my_language_model", "options_file": "a"}, False),
        ({"weight_file": "b"}, False),
    ],
)
def test_sections_of_a_config(section: Any, found: bool) -> None:
    config = {"model": {"inner": [section]}}
    assert list(elmo_sections(config)) == ([("model.inner.0", section)] if found else [])
    assert list(elmo_sections(section)) == ([("", section)] if found else [])
