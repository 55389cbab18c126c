from pathlib import Path
from typing import Any, Optional

import pytest

from allennlp_elmo_plugin.files.model_file_names import (
    find_archives,
    find_checkpoint_names,
    find_options_file,
    find_vocabulary_file,
    find_weight_file,
    has_checkpoint,
    is_model_file,
    is_training_run,
    model_folders,
    name_beside,
    options_of,
    weights_of,
)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """Makes a folder with empty files of these names."""

    def make(names: str) -> Path:
        for name in names.split():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return make


def name_of(path: Optional[Path]) -> Optional[str]:
    return path and path.name


@pytest.mark.parametrize(
    "names, options, weights",
    [
        ("options.json weights.hdf5 softmax.hdf5 adagrad.hdf5", "options.json", "weights.hdf5"),
        ("options.json weights.hdf5 model.hdf5", "options.json", "weights.hdf5"),
        ("a_options.json a_weights.hdf5 weights.hdf5", "a_options.json", "a_weights.hdf5"),
        ("a_options.json weights.hdf5 b.hdf5", "a_options.json", "weights.hdf5"),
        ("my_options.json slovenian.hdf5 softmax.hdf5", "my_options.json", "slovenian.hdf5"),
        ("options.json a_options.json model.hdf5", "options.json", "model.hdf5"),
        # The weights of other options, and the softmax
        ("options.json a_options.json a_weights.hdf5", "options.json", None),
        ("options.json a_options.json b.hdf5", "options.json", None),
        ("options.json softmax.hdf5 adagrad.hdf5 ._weights.hdf5", "options.json", None),
        ("weights.hdf5", None, "weights.hdf5"),
        ("notes.txt", None, None),
    ],
)
def test_the_two_files_in_a_folder(
    names: str, options: Optional[str], weights: Optional[str], folder: Any
) -> None:
    made = folder(names)
    assert name_of(find_options_file(made)) == options
    assert name_of(find_weight_file(made)) == weights
    if options and weights:
        assert weights_of(made / options) == made / weights
        assert options_of(made / weights) == made / options


@pytest.mark.parametrize(
    "names, own, other",
    [
        ("a_options.json a_weights.hdf5 options.json", "a_weights.hdf5", "a_options.json"),
        ("a_options.json a_weights.hdf5 weights.hdf5", "weights.hdf5", None),
        ("a_options.json b_options.json options.json weights.hdf5", "a_options.json", None),
        ("a_options.json options.json model.hdf5", "a_options.json", None),
        ("a_options.json options.json c.hdf5", "c.hdf5", None),
        ("options.json model.hdf5 weights.hdf5", "model.hdf5", "options.json"),
        ("weights.hdf5", "weights.hdf5", None),
    ],
)
def test_what_belongs_to_a_file(names: str, own: str, other: Optional[str], folder: Any) -> None:
    path = folder(names) / own
    assert name_of((options_of if own.endswith("hdf5") else weights_of)(path)) == other


@pytest.mark.parametrize(
    "names, message",
    [
        ("a_options.json b_options.json a_weights.hdf5", "has a_options.json, b_options.json, so"),
        ("a_options.json a.hdf5 b.hdf5", "has a.hdf5, b.hdf5, .* weights.hdf5 or model.hdf5$"),
    ],
)
def test_what_is_not_clear(names: str, message: str, folder: Any) -> None:
    with pytest.raises(ValueError, match=message):
        find_weight_file(folder(names))


def test_names_beside() -> None:
    for prefix in ("x/", "a_", "https://x/b_"):
        assert name_beside(f"{prefix}options.json") == f"{prefix}weights.hdf5"
        assert name_beside(f"{prefix}weights.hdf5") == f"{prefix}options.json"
    assert name_beside("https://x/model.hdf5") == "https://x/options.json"
    assert name_beside("other.hdf5") is None and name_beside("a_model.hdf5") is None


@pytest.mark.parametrize(
    "names, is_run",
    [
        ("config.json best.th", True),
        ("config.json", True),
        ("config.json best.th options.json layers.hdf5", True),
        ("config.json best.th options.json a.hdf5 b.hdf5", True),
        ("config.json weights.th options.json weights.hdf5", False),
        ("config.json my_options.json slovenian.hdf5", False),
        ("best.th options.json", False),
    ],
)
def test_training_runs(names: str, is_run: bool, folder: Any) -> None:
    assert is_training_run(folder(names)) == is_run


def test_checkpoints(folder: Any) -> None:
    files = ["a-1.index", "a-1.data-00000-of-00002", "a-1.data-00001-of-00002"]
    made = folder(f"corpus.index {' '.join(files)}")
    assert find_checkpoint_names(made) == ["a-1"] and has_checkpoint(made)
    (made / "a-1.index").unlink()
    assert not has_checkpoint(made)
    assert has_checkpoint(folder("checkpoint"))


def test_vocabularies_and_archives(folder: Any) -> None:
    made = folder("vocab-2016.txt.gz z.zip model.tar.gz a.tgz")
    assert name_of(find_vocabulary_file(made)) == "vocab-2016.txt.gz"
    assert list(map(name_of, find_archives(made))) == ["model.tar.gz", "a.tgz", "z.zip"]
    assert find_vocabulary_file(folder("vocab-b.txt")) is None
    assert name_of(find_vocabulary_file(folder("vocabulary/lm_tokens.txt"))) == "lm_tokens.txt"
    assert name_of(find_vocabulary_file(folder("vocab.txt"))) == "vocab.txt"


def test_files_and_folders_of_an_archive(folder: Any) -> None:
    for name in ("x/a_options.json", "model.hdf5", "vocabulary/lm_tokens.txt", "README.md"):
        assert is_model_file(name), name
    for name in ("x/._options.json", "../options.json", "/options.json", ".x/y.hdf5", "notes.md"):
        assert not is_model_file(name), name
    made = folder("a/options.json b/config.json c/notes.txt")
    assert set(model_folders(made)) == {made / "a", made / "b"}
    assert model_folders(folder("x_options.json"))[0] == made
