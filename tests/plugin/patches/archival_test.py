"""Archives that contain the ELMo files of their config."""

import json
import os
import shutil
import tarfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models import Model, archival, load_archive

from allennlp_elmo_plugin.plugin.patches import archival as our_archival
from allennlp_elmo_plugin.pretrained.find_model import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_files, write_random_elmo

OPTIONS_KEY = "model.text_field_embedder.token_embedders.elmo.options_file"
WEIGHT_KEY = OPTIONS_KEY.replace("options", "weight")
MANY_LANGS = REFERENCE.with_name("elmo_for_many_langs")
DEFAULTS = [DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE]


def train(options_file, weight_file, name="model", model=None):
    """Train a tagger, or what another section `model` says, in this folder, and return it."""
    elmo = {"type": "elmo_token_embedder", "vocab_to_cache": ["@@PADDING@@", "the"]}
    elmo.update(options_file=options_file, weight_file=weight_file)
    indexers = {"elmo": {"type": "elmo_characters"}}
    config = {
        "dataset_reader": {"type": "sequence_tagging", "token_indexers": indexers},
        "train_data_path": "train.tsv",
        "model": model
        or {
            "type": "simple_tagger",
            "text_field_embedder": {"token_embedders": {"elmo": elmo}},
            "encoder": {"type": "lstm", "input_size": 16, "hidden_size": 4},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"num_epochs": 1, "cuda_device": -1, "optimizer": "adam"},
    }
    return train_model(Params(config), name)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Where the training runs: the config's paths are relative to it."""
    here = tmp_path / "here"
    (here / "elmo").mkdir(parents=True)
    monkeypatch.chdir(here)
    write_random_elmo("elmo", seed=5)
    shutil.make_archive("elmo", "zip", "elmo")
    (here / "train.tsv").write_text("Alice###N counted###V\nthe###D\n", encoding="utf-8")
    return here


def assert_same_weights(actual, expected):
    torch.testing.assert_close(actual.state_dict(), expected.state_dict(), rtol=0, atol=0)


def assert_moved_archive_is(trained, name):
    """The archive of a training gives its model where no other file is left."""
    here = Path.cwd()
    shutil.move(here / name / "model.tar.gz", here.parent)
    shutil.rmtree(here)
    os.chdir(here.parent)
    assert_same_weights(Model.from_archive("model.tar.gz"), trained)
    assert os.listdir() == ["model.tar.gz"]


PAIR = ("elmo/options.json", "elmo/weights.hdf5")


@pytest.mark.parametrize("files", [PAIR, ("elmo.zip",) * 2, ("checkpoint",) * 2])
def test_loads_where_the_elmo_files_are_not(files, here):
    shutil.copytree(REFERENCE / "checkpoint", "checkpoint", ignore=lambda *_: ["weights.hdf5"])
    trained = train(*files)
    assert not {path.name for path in (here / "model").iterdir()} & {"fta", "files_to_archive.json"}
    with tarfile.open("model/model.tar.gz") as archive:  # The layout is that of AllenNLP 0.9.
        index = json.load(archive.extractfile("files_to_archive.json"))
        config = archive.extractfile("config.json").read()
        options = json.load(archive.extractfile(f"fta/{OPTIONS_KEY}"))
        assert f"fta/{WEIGHT_KEY}" in archive.getnames()
    assert index == {OPTIONS_KEY: files[0], WEIGHT_KEY: files[1]}
    assert (options["lstm"]["dim"], options["lstm"]["projection_dim"]) == (16, 8)
    assert config == (here / "model" / "config.json").read_bytes()
    config = load_archive("model/model.tar.gz").config
    assert (config.as_flat_dict()[OPTIONS_KEY], config.as_flat_dict()[WEIGHT_KEY]) == files
    assert Model.from_params(params=config["model"], vocab=trained.vocab) is not None
    assert_moved_archive_is(trained, "model")
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        load_archive("model.tar.gz", overrides={OPTIONS_KEY: "nowhere.json"})


@pytest.mark.parametrize("files", [("173", "173"), ("173.zip", DEFAULT_WEIGHT_FILE)])
def test_carries_a_model_of_elmo_for_many_langs(files):
    """Its folder, once, for both arguments."""
    shutil.copytree(MANY_LANGS / "latin_gpu_pickles", "173")
    shutil.make_archive("173", "zip", "173")
    trained = train(*files)
    with tarfile.open("model/model.tar.gz") as archive:
        assert "".join(archive.getnames()).count("encoder.pkl") == 1
    assert_moved_archive_is(trained, "model")


@pytest.mark.parametrize("origin", ["model/model.tar.gz", "model"])
def test_carries_the_archive_that_it_started_from(origin, here):
    train("elmo", "elmo")
    if origin.endswith(".gz"):  # whose ELMo is only inside it
        shutil.rmtree("elmo")
    train("", "", "second", {"type": "from_archive", "archive_file": origin})
    tagger = json.loads((here / "model" / "config.json").read_text(encoding="utf-8"))["model"]
    second = {"archive_file": "second/model.tar.gz", "module_path": "text_field_embedder"}
    tagger["text_field_embedder"] = {"_pretrained": second}
    trained = train("", "", "third", tagger)
    assert_moved_archive_is(trained, "third")


def test_archives_of_the_version_before(here):
    """Their configs name the files inside the archive, by an expression of jsonnet."""
    trained = train("elmo", "elmo")
    shutil.unpack_archive("model/model.tar.gz", "old")
    shutil.rmtree("elmo")
    text = (here / "old" / "config.json").read_text(encoding="utf-8")
    for key in (OPTIONS_KEY, WEIGHT_KEY):
        name = key.rpartition(".")[-1]
        text = text.replace(f'"{name}": "elmo"', f'"{name}": folder + "fta/{key}"')
    head = 'local folder = std.strReplace(std.thisFile, "config.json", "");'
    (here / "old" / "config.json").write_text(head + text, encoding="utf-8")
    assert_same_weights(Model.from_archive("old"), trained)


def test_interruptions_and_files_that_are_gone(here, monkeypatch):
    """Of a training that takes weeks the model is archived, whatever became of the files."""
    train("elmo", "elmo")
    before = read_files(here / "model", "out.log")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tarfile.TarFile, "add", MagicMock(side_effect=[None, KeyboardInterrupt]))
        archival.archive_model(here / "model")
    assert read_files(here / "model", "out.log") == before  # An archive is whole or stays.
    (here / "elmo" / "weights.hdf5").rename(here / "away")
    warning = MagicMock()
    monkeypatch.setattr(our_archival.logger, "warning", warning)
    path = archival.archive_model(here / "model")
    (args,) = [call.args for call in warning.call_args_list]
    assert "without its ELMo files: elmo: there is no weights.hdf5" in args[0] % args[1:]
    with tarfile.open(path) as archive:
        assert not [name for name in archive.getnames() if name.startswith(("fta", "files"))]
    # An archive without them, as AllenNLP 2.10.1 makes it, takes them from their places.
    (here / "away").rename(here / "elmo" / "weights.hdf5")
    assert load_archive(path).model is not None


@pytest.mark.parametrize("patterns", [["no*.txt"], None])
def test_included_files(tmp_path, here, patterns):
    train("elmo", "elmo", name="model[1]*")
    folder = here / "model[1]*"
    config = json.loads((folder / "config.json").read_text()) | {"include_in_archive": ["note.txt"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "note.txt").write_text("note", encoding="utf-8")
    (folder / "best.th").rename(folder / "link.th")  # as of a checkpoint that is the best
    (folder / "best.th").symlink_to("link.th")
    path = archival.archive_model(folder, archive_path=tmp_path, include_in_archive=patterns)
    assert path == str(tmp_path / "model.tar.gz")
    with tarfile.open(path) as archive:
        assert archive.getmember("weights.th").isfile()
        assert set(archive.getnames()) == {
            *("config.json", "weights.th", "files_to_archive.json", "meta.json", "metrics.json"),
            *(f"fta/{OPTIONS_KEY}", f"fta/{WEIGHT_KEY}", "note.txt", "vocabulary"),
            *(f"vocabulary/{file.name}" for file in (folder / "vocabulary").iterdir()),
        }
    (folder / "best.th").unlink()
    with pytest.raises(FileNotFoundError, match="best.th"):
        archival.archive_model(folder)


@pytest.mark.parametrize(
    "section, paths",
    [
        ({"type": "elmo_token_embedder"}, DEFAULTS),
        ({"type": "elmo_token_embedder", "options_file": "small"}, ["small", DEFAULTS[1]]),
        ({"type": "elmo_token_embedder", "options_file": None}, []),
        ({"options_file": "a", "weight_file": "b"}, ["a", "b"]),  # an argument of the class `Elmo`
        ({"options_file": "small"}, ["small", DEFAULTS[1]]),
        ({"type": "my_elmo", "options_file": "a", "weight_file": "b"}, ["a", "b"]),
        # The options of a language model, which has no published weights.
        ({"type": "bidirectional_lm", "options_file": "a", "num_samples": 20}, []),
        ({"weight_file": "b"}, []),
        ({"type": "from_archive", "archive_file": "a"}, ["a"]),
        ({"archive_file": None}, []),
    ],
)
def test_sections_of_a_config(section, paths):
    for config, place in (({"model": {"inner": [section]}}, "model.inner.0"), (section, "")):
        sections = our_archival._sections_with_files(config)
        expected = [(place, section, paths)] if paths else []
        assert [(*where, list(names.values())) for *where, names in sections] == expected
