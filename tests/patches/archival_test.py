import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Token
from allennlp.models import Model, archival, load_archive

from allennlp_elmo_plugin.patches import archival as our_archival
from tests.support.testing import read_files, write_random_elmo

SENTENCE = "Alice counted the naïve ﬁsh".split()
OPTIONS_KEY = "model.text_field_embedder.token_embedders.elmo.options_file"


def config(options_file: str, weight_file: str) -> Dict[str, Any]:
    return {
        "dataset_reader": {
            "type": "sequence_tagging",
            "token_indexers": {"elmo": {"type": "elmo_characters"}},
        },
        "train_data_path": "train.tsv",
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {
                "token_embedders": {
                    "elmo": {
                        "type": "elmo_token_embedder",
                        "options_file": options_file,
                        "weight_file": weight_file,
                        "vocab_to_cache": ["@@PADDING@@", "the"],
                    }
                }
            },
            "encoder": {"type": "lstm", "input_size": 16, "hidden_size": 4},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"num_epochs": 1, "cuda_device": -1, "optimizer": "adam"},
    }


def train(folder: Path, *files: str, name: str = "model") -> Model:
    (folder / "train.tsv").write_text("Alice###N counted###V\nthe###D\n", encoding="utf-8")
    return train_model(Params(config(*files)), str(folder / name))


def logits(model: Model, reader: Any) -> Any:
    for module in model.eval().modules():
        if hasattr(module, "reset_states"):
            module.reset_states()
    instance = reader.text_to_instance([Token(word) for word in SENTENCE])
    reader.apply_token_indexers(instance)
    return np.array(model.forward_on_instance(instance)["logits"])


def assert_same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-6)


def members(path: Path) -> List[str]:
    with tarfile.open(path) as archive:
        return sorted(archive.getnames())


@pytest.fixture
def elmo(tmp_path: Path) -> Path:
    folder = tmp_path / "elmo"
    folder.mkdir()
    write_random_elmo(folder, seed=5)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the training runs: the config's paths are relative to it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(
    "files",
    [("elmo/options.json", "elmo/weights.hdf5"), ("elmo", "elmo"), ("elmo.zip", "elmo.zip")],
    ids=["files", "folder", "zip"],
)
def test_loads_where_the_elmo_files_are_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: Path,
    elmo: Path,
    files: Tuple[str, str],
) -> None:
    shutil.move(str(elmo), str(here / "elmo"))
    shutil.make_archive("elmo", "zip", "elmo")
    trained = train(here, *files)
    before = set((here / "model").iterdir())
    assert not any(path.name in ("fta", "files_to_archive.json") for path in before)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(str(here / "model" / "model.tar.gz"), str(elsewhere / "model.tar.gz"))
    shutil.rmtree(here)
    monkeypatch.chdir(elsewhere)

    archive = load_archive("model.tar.gz")
    reader = archive.dataset_reader
    assert_same(logits(archive.model, reader), logits(trained, reader))
    assert list(tmp_path.joinpath("elsewhere").iterdir()) == [elsewhere / "model.tar.gz"]
    assert Model.from_archive("model.tar.gz") is not None


def test_layout_is_that_of_0_9(here: Path, elmo: Path) -> None:
    train(here, str(elmo / "options.json"), str(elmo / "weights.hdf5"))
    path = here / "model" / "model.tar.gz"
    weight_key = OPTIONS_KEY.replace("options_file", "weight_file")
    assert members(path)[2:5] == [f"fta/{OPTIONS_KEY}", f"fta/{weight_key}", "meta.json"]
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("files_to_archive.json"))
        options = archive.extractfile(f"fta/{OPTIONS_KEY}").read()
    assert index == {
        OPTIONS_KEY: str(elmo / "options.json"),
        weight_key: str(elmo / "weights.hdf5"),
    }
    assert options == (elmo / "options.json").read_bytes()


def test_the_archives_files_come_first_but_for_overrides(
    tmp_path: Path, here: Path, elmo: Path
) -> None:
    files = str(elmo / "options.json"), str(elmo / "weights.hdf5")
    trained = train(here, *files)
    path = here / "model" / "model.tar.gz"
    write_random_elmo(elmo, seed=6, lstm_dim=12)  # others under the same name
    archive = load_archive(path)
    assert_same(
        logits(archive.model, archive.dataset_reader), logits(trained, archive.dataset_reader)
    )
    with pytest.raises(FileNotFoundError, match="nowhere.json"):
        load_archive(path, overrides={OPTIONS_KEY: "nowhere.json"})


def test_files_that_are_gone(here: Path, elmo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training that takes weeks the model is archived, whatever became of the files."""
    files = str(elmo / "options.json"), str(elmo / "weights.hdf5")
    train(here, *files)
    kept = (elmo / "weights.hdf5").read_bytes()
    (elmo / "weights.hdf5").unlink()
    warnings: List[str] = []
    monkeypatch.setattr(
        our_archival.logger, "warning", lambda message, *values: warnings.append(message % values)
    )
    path = archival.archive_model(here / "model")
    assert len(warnings) == 1 and "without its ELMo files: there is no" in warnings[0]
    assert not [name for name in members(Path(path)) if "f" in name and "ta" in name[:4]]
    assert not (here / "model" / "fta").exists()
    # An archive without them, as AllenNLP 2.10.1 makes it, takes them from their places.
    (elmo / "weights.hdf5").write_bytes(kept)
    assert load_archive(path).model is not None


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_archive_is_whole_or_stays_as_it_was(
    here: Path, elmo: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    train(here, str(elmo), str(elmo))
    before = read_files(here / "model", "out.log")

    def failing(archive: tarfile.TarFile, name: str, *args: Any, **kwargs: Any) -> None:
        if "weights" in str(name):
            raise error
        add(archive, name, *args, **kwargs)

    add = tarfile.TarFile.add
    monkeypatch.setattr(tarfile.TarFile, "add", failing)
    with pytest.raises(type(error)):
        archival.archive_model(here / "model")
    assert read_files(here / "model", "out.log") == before


@pytest.mark.parametrize("given", [["no*.txt"], None])
def test_included_files(tmp_path: Path, here: Path, elmo: Path, given: Any) -> None:
    """When a training is interrupted, AllenNLP doesn't pass what the config includes."""
    train(here, str(elmo), str(elmo), name="model[1]*")
    folder = here / "model[1]*"
    (folder / "note.txt").write_text("note", encoding="utf-8")
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings["include_in_archive"] = ["note.txt"]
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    path = archival.archive_model(folder, archive_path=tmp_path, include_in_archive=given)
    assert path == str(tmp_path / "model.tar.gz")
    assert set(members(Path(path))) == {
        *("config.json", "weights.th", "files_to_archive.json", "meta.json", "metrics.json"),
        *(f"fta/{OPTIONS_KEY.replace('options', kind)}" for kind in ("options", "weight")),
        *("vocabulary", *(f"vocabulary/{each.name}" for each in (folder / "vocabulary").iterdir())),
        "note.txt",
    }
    for name in ("best.th", "config.json"):
        (folder / name).unlink()
        with pytest.raises(RuntimeError, match=f"{name}' does not exist, unable to archive"):
            archival.archive_model(folder)


def test_models_without_elmo(here: Path) -> None:
    model = config("", "")
    model["dataset_reader"]["token_indexers"] = {"elmo": {"type": "single_id"}}
    model["model"]["text_field_embedder"]["token_embedders"]["elmo"] = {
        "type": "embedding",
        "embedding_dim": 16,
    }
    (here / "train.tsv").write_text("Alice###N counted###V\n", encoding="utf-8")
    train_model(Params(model), str(here / "model"))
    names = members(here / "model" / "model.tar.gz")
    assert not [name for name in names if name.startswith("f")]
    assert load_archive(here / "model" / "model.tar.gz").model is not None


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
        ({"weight_file": "b"}, False),
    ],
)
def test_sections_of_a_config(section: Any, found: bool) -> None:
    config = {"model": {"inner": [section]}}
    assert list(our_archival._elmo_sections(config)) == (
        [("model.inner.0", section)] if found else []
    )
    assert list(our_archival._elmo_sections(section)) == ([("", section)] if found else [])
