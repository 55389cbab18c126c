import pytest

from allennlp_elmo_plugin.pretrained import file_names as files


@pytest.fixture
def folder(tmp_path):
    """Makes a folder with empty files of these names."""

    def make(names):
        for name in names.split():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return make


def name_of(path):
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
        ("a_options.json b.hdf5 a_softmax_weights.hdf5", "a_options.json", "b.hdf5"),
        # The weights of other options, and the softmax
        ("options.json a_options.json a_weights.hdf5", "options.json", None),
        ("options.json a_options.json b.hdf5", "options.json", None),
        ("options.json softmax.hdf5 adagrad.hdf5 ._weights.hdf5", "options.json", None),
        ("weights.hdf5", None, "weights.hdf5"),
    ],
)
def test_the_two_files_in_a_folder(names, options, weights, folder):
    parent = folder(names)
    assert name_of(files.find_options_file(parent)) == options
    assert name_of(files.weights_of(parent / (options or "options.json"))) == weights
    if options and weights:
        assert files.options_of(parent / weights) == parent / options


@pytest.mark.parametrize(
    "names, own, other",
    [
        ("a_options.json a_weights.hdf5 options.json", "a_weights.hdf5", "a_options.json"),
        ("a_options.json a_weights.hdf5 weights.hdf5", "weights.hdf5", None),
        ("a_options.json b_options.json options.json weights.hdf5", "a_options.json", None),
        ("a_options.json options.json c.hdf5", "c.hdf5", None),
        ("options.json model.hdf5 weights.hdf5", "model.hdf5", "options.json"),
    ],
)
def test_what_belongs_to_a_file(names, own, other, folder):
    path = folder(names) / own
    assert name_of((files.options_of if own.endswith("hdf5") else files.weights_of)(path)) == other


def test_what_is_not_clear(folder):
    with pytest.raises(ValueError, match="a.hdf5, b.hdf5 is .* weights.hdf5 or model.hdf5"):
        files.weights_of(folder("a_options.json a.hdf5 b.hdf5") / "a_options.json")
    with pytest.raises(ValueError, match="of a_options.json, b_options.json is .* options.json"):
        files.find_options_file(folder("b_options.json"))


def test_names_beside():
    for prefix in ("x/", "a_", "https://x/b_"):
        assert files.name_beside(f"{prefix}options.json") == f"{prefix}weights.hdf5"
        assert files.name_beside(f"{prefix}weights.hdf5") == f"{prefix}options.json"
    assert files.name_beside("https://x/model.hdf5") == "https://x/options.json"
    assert files.name_beside("other.hdf5") is None and files.name_beside("a_model.hdf5") is None


@pytest.mark.parametrize(
    "names, is_run",
    [
        ("config.json best.th", True),
        ("config.json weights.hdf5", True),
        ("config.json best.th options.json a.hdf5 b.hdf5", True),
        ("config.json weights.th options.json weights.hdf5", False),
        ("config.json weights.th options.json model.hdf5", False),
        ("config.json my_options.json slovenian.hdf5", False),
        ("best.th options.json", False),
    ],
)
def test_training_runs(names, is_run, folder):
    assert files.is_training_run(folder(names)) == is_run


def test_checkpoints_and_vocabularies(folder):
    parts = ["a-1.index", "a-1.data-00000-of-00002", "a-1.data-00001-of-00002"]
    parent = folder(f"corpus.index {' '.join(parts)} vocab-2016.txt.gz")
    assert files.find_checkpoint_names(parent) == ["a-1"]
    (parent / "a-1.index").unlink()
    assert not files.find_checkpoint_names(parent)
    assert name_of(files.find_vocabulary_file(parent)) == "vocab-2016.txt.gz"
    assert files.find_vocabulary_file(folder("vocab-b.txt")) is None
    for name in ("vocabulary/lm_tokens.txt", "vocab.txt.gz", "vocab.txt"):
        assert files.find_vocabulary_file(folder(name)) == parent / name


def test_files_of_an_archive():
    for name in ("x/a_options.json", "model.hdf5", "vocabulary/lm_tokens.txt", "README.md"):
        assert files.is_model_file(name), name
    for name in ("x/._options.json", "../options.json", "/options.json", ".x/y.hdf5", "notes.md"):
        assert not files.is_model_file(name), name


@pytest.mark.parametrize(
    "name", ["//server/x", "\\\\server\\x", "/\\server\\x", "\\??\\UNC\\server\\x"]
)
def test_paths_on_other_computers_are_refused(name):
    files.refuse_other_computers("/home/me/x", "config.json")
    with pytest.raises(ValueError, match="^config.json is .*server.*, on another computer"):
        files.refuse_other_computers(name, "config.json")
