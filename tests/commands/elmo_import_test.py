"""`allennlp elmo-import`: checkpoints of bilm-tf and published models become archives."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import h5py
import numpy as np
import pytest
import torch
from allennlp.models import load_archive

from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import read_index
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, variables
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import fork, limit_file_size, read_arrays, read_files

VOCABULARY = REFERENCE / "data" / "vocab.txt"
PREFIX = "model.ckpt-30"


@pytest.fixture
def checkpoint(run: Any) -> Path:
    """bilm-tf's own: a checkpoint, its options and, here, the vocabulary, but no weights.hdf5."""
    folder = Path("checkpoint")
    folder.mkdir()
    for path in (REFERENCE / "checkpoint").iterdir():
        if path.name.startswith(PREFIX) or path.name in ("checkpoint", "options.json"):
            shutil.copy(path, folder)
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    return folder


@pytest.fixture
def published(run: Any) -> Path:
    """As ELMo models are published: options and weights."""
    folder = Path("published")
    folder.mkdir()
    options = json.loads((REFERENCE / "checkpoint" / "options_inference.json").read_text("utf-8"))
    options = {key: options[key] for key in ("lstm", "char_cnn")}
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    shutil.copy(REFERENCE / "checkpoint" / "weights.hdf5", folder)
    return folder


def load(output: str = "model") -> Tuple[Any, Dict[str, Any]]:
    archive = load_archive(f"{output}/model.tar.gz")
    return archive.model, archive.config.as_dict(quiet=True)


def read_checkpoint(folder: Path) -> Dict[str, Any]:
    return {name: np.array(each.open()) for name, each in read_index(folder / PREFIX).items()}


def test_checkpoint(checkpoint: Path, run: Any) -> None:
    """Imported and exported, it is what bilm-tf dumps."""
    (checkpoint / "weights.hdf5").write_text("not read")  # The checkpoint has more.
    printed = run("elmo-import checkpoint model")
    assert printed == "Written to model: adagrad.hdf5, model.tar.gz\n"
    assert read_files("model").keys() == {"model.tar.gz", "adagrad.hdf5"}
    export("model/model.tar.gz", "elmo")
    expected = read_arrays(REFERENCE / "checkpoint" / "weights.hdf5")
    found = read_arrays("elmo/weights.hdf5")
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    _, arrays = load_run("train_charcnn")
    for name, values in read_arrays("elmo/softmax.hdf5").items():
        assert np.array_equal(values, arrays[f"final/lm/{name}"])
    assert Path("elmo/vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    _, config = load()
    reader = {
        "type": "truncated_bptt_lm",
        **{"batch_size": 4, "num_steps": 5},
        **{"max_characters_per_token": 50, "bidirectional": True},
    }
    options = config.pop("model")["options"]
    assert config == {
        "dataset_reader": reader,
        "validation_dataset_reader": {**reader, "drop_last": False},
        "data_loader": {"type": "truncated_bptt"},
    }
    assert options["char_cnn"]["n_characters"] == 262


def test_accumulators_take_the_form_of_the_parameters(checkpoint: Path) -> None:
    import_model(checkpoint, "model")
    model, _ = load()
    _, arrays = load_run("train_charcnn")
    with h5py.File("model/adagrad.hdf5", "r") as file:
        assert file.attrs["step"] == 30
        for name, parameter in model.named_parameters():
            parameter.data = torch.from_numpy(file[name][...])
            assert parameter.min() >= 1.0
    assert bool((model.bilm.token_layer._char_embedding_weights[0] == 1.0).all())
    found = dict(variables(model))
    assert {f"accum/{name}" for name in found} == {n for n in arrays if n[:6] == "accum/"}
    for name, values in found.items():
        sign = -1 if "carry" in name else 1
        assert np.array_equal(values * sign, arrays[f"accum/{name}"]), name


def test_one_of_several_without_accumulators(checkpoint: Path, run: Any) -> None:
    stored = read_checkpoint(checkpoint)
    values = {name: value for name, value in stored.items() if "Adagrad" not in name}
    values["lm/softmax/b"] = values["lm/softmax/b"] + 1
    write_checkpoint(checkpoint / "model.ckpt-29", values)
    printed = run("elmo-import checkpoint/model.ckpt-29 model")
    assert printed == "Written to model: model.tar.gz\n"
    assert np.array_equal(load()[0].softmax.bias.detach().numpy(), values["lm/softmax/b"])
    assert read_files("model").keys() == {"model.tar.gz"}


def test_evaluate_gives_bilm_tfs_perplexity(checkpoint: Path, run: Any) -> None:
    import_model(checkpoint, "model")
    # bilm-tf's own test, with its windows.
    reader = "validation_dataset_reader"
    overrides = json.dumps({f"{reader}.drop_last": True, f"{reader}.num_steps": 1})
    text = REFERENCE / "data" / "test.txt"
    run("evaluate model/model.tar.gz --output-file metrics.json", text, "-o", overrides)
    metrics = json.loads(Path("metrics.json").read_text(encoding="utf-8"))
    expected = float(load_run("train_charcnn")[1]["test4/perplexity"])
    assert metrics["perplexity"] == pytest.approx(expected, rel=1e-6)


def test_force_replaces_an_earlier_import(checkpoint: Path, published: Path) -> None:
    import_model(checkpoint, "model")
    Path("model/notes").touch()
    with pytest.raises(ValueError, match="model is not empty; choose another output, or --force"):
        import_model(published, "model", VOCABULARY)
    import_model(published, "model", VOCABULARY, force=True)
    assert read_files("model").keys() == {"model.tar.gz", "notes"}


def test_a_full_disk_changes_nothing(checkpoint: Path) -> None:
    """Wherever it happens: in the weights, the archive or the accumulators."""
    import_model(checkpoint, "model")
    before = read_files("model")
    largest = max(map(len, before.values()))

    def fill(n_bytes: int) -> None:
        limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: File too large; nothing .*/model'"):
            import_model(checkpoint, "model", force=True)

    for n_bytes in (100, 5000, largest // 2, largest - 1):
        assert fork(lambda: fill(n_bytes)) == 0  # noqa: B023
        assert read_files("model") == before


CHAR_CNN = {
    **{"activation": "relu", "embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]]},
    **{"max_characters_per_token": 50, "n_characters": 261, "n_highway": 1},
}
LSTM = {
    **{"cell_clip": 3, "dim": 7, "n_layers": 2, "proj_clip": 3, "projection_dim": 5},
    "use_skip_connections": True,
}


def variant(char_cnn: Optional[Dict[str, Any]] = None, **changes: Any) -> Dict[str, Any]:
    """Return options; `char_cnn` is empty for a model of words."""
    options: Dict[str, Any] = {
        **{"bidirectional": True, "dropout": 0.1, "n_negative_samples_batch": 12},
        **{"n_tokens_vocab": 50, "unroll_steps": 6},
        **changes,
        "lstm": {**LSTM, **changes.get("lstm", {})},
    }
    if char_cnn != {}:
        options["char_cnn"] = {**CHAR_CNN, **(char_cnn or {})}
    return options


TIED = {"char_cnn": {}, "share_embedding_softmax": True}
VARIANTS = {
    "characters": variant(),
    "characters of prediction": variant({"n_characters": 262}),
    "two highway layers, tanh": variant({"n_highway": 2, "activation": "tanh"}),
    "no highway layer": variant({"n_highway": 0}),
    "no projection of characters": variant({"filters": [[1, 2], [2, 3]]}),
    "no projection": variant(lstm={"dim": 5}),
    "one layer": variant(lstm={"n_layers": 1}),
    "three layers": variant(lstm={"n_layers": 3}),
    "other width of words": variant({"max_characters_per_token": 30}),
    "forward only": variant(bidirectional=False),
    "forward only, one layer": variant(bidirectional=False, lstm={"n_layers": 1}),
    "tokens": variant({}),
    "tied": variant(**TIED),
    "tied, forward only": variant(**TIED, bidirectional=False),
}


def save(options: Dict[str, Any]) -> Any:
    """Save a random model in the folder `saved`, as bilm-tf saves its own; return it."""
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(read_vocabulary(Path("words")), options=options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    if "char_cnn" in options:
        model.bilm.token_layer._char_embedding_weights.data[0] = 0.0
    Path("saved").mkdir()
    arrays: Dict[str, Any] = {"global_step": np.array(3, "int64")}
    for i, (name, values) in enumerate(variables(model)):
        if name == "lm/softmax/W" and options.get("share_embedding_softmax"):
            continue
        name = tensorflow_name(name, options)
        arrays[name] = values.copy()
        arrays[f"{name}/Adagrad"] = np.full(values.shape, 2.0 + i, "float32")
    write_checkpoint(Path("saved/model.ckpt-3"), arrays, n_shards=2)
    write_options(options)
    shutil.copy(VOCABULARY, "saved/vocab-2016.txt")
    return model


def write_options(options: Dict[str, Any]) -> None:
    Path("saved/options.json").write_text(json.dumps(options), encoding="utf-8")


def tensorflow_name(name: str, options: Dict[str, Any]) -> str:
    """bilm-tf names the variables of some models in its own way."""
    if options["lstm"]["n_layers"] == 1:
        name = name.replace("multi_rnn_cell/cell_0/", "")
    return name if options["bidirectional"] else name.replace("RNN_0/", "")


def assert_same_model(output: str, model: Any) -> None:
    imported, _ = load(output)
    found, expected = (dict(each.named_parameters()) for each in (imported, model))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert imported.options.to_dict() == model.options.to_dict()


@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip(name: str, run: Any) -> None:
    model = save(VARIANTS[name])
    import_model("saved", "model")
    assert_same_model("model", model)
    with h5py.File("model/adagrad.hdf5", "r") as file:
        assert set(file) == {key for key, _ in model.named_parameters()}
        assert file.attrs["step"] == 3
    # What elmo-export makes of it is imported in turn, from the published layout.
    export("model/model.tar.gz", "elmo")
    import_model("elmo", "again")
    assert_same_model("again", model)
    assert read_files("again").keys() == {"model.tar.gz"}
    # How many directions and words there are need not be said.
    left_out = ("bidirectional", "n_tokens_vocab")
    write_options({key: value for key, value in VARIANTS[name].items() if key not in left_out})
    import_model("saved", "third")
    assert_same_model("third", model)


def test_a_published_model_gets_a_new_softmax(published: Path, run: Any) -> None:
    Path("words").write_text("<S>\n</S>\n<UNK>\nthe\n,\nnaïve\n", encoding="utf-8")
    out = run("elmo-import published model --vocab-file words")
    assert "There was no softmax to import: train a new one before" in out
    model, config = load()
    assert model.softmax.weight.shape == (6, 8) and model.options.n_tokens_vocab == 6
    # bilm-tf's default of samples is more than there are words.
    assert model.softmax.sampler is None
    reader = config["dataset_reader"]
    assert (reader["batch_size"], reader["num_steps"]) == (128, 20)


def test_a_tied_softmax_without_its_bias(run: Any) -> None:
    model = save(VARIANTS["tied"])
    import_model("saved", "model")
    export("model/model.tar.gz", "elmo")
    Path("elmo/softmax.hdf5").unlink()
    out = run("elmo-import elmo again")
    assert "no softmax to import: train a new one before you evaluate.\n" in out
    imported, _ = load("again")
    assert torch.equal(imported.softmax.weight, model.bilm.token_layer.weight)
    assert not imported.softmax.bias.any()


@pytest.mark.parametrize("n_words", [12, 13])
def test_samples_are_fewer_than_the_words(n_words: int, published: Path, run: Any) -> None:
    options = json.loads((published / "options.json").read_text(encoding="utf-8"))
    options["n_negative_samples_batch"] = 12
    (published / "options.json").write_text(json.dumps(options), encoding="utf-8")
    words = ["<S>", "</S>", "<UNK>", *map(str, range(n_words - 3))]
    Path("words").write_text("\n".join(words) + "\n", encoding="utf-8")
    import_model(published, "model", "words")
    assert (load()[0].softmax.sampler is None) == (n_words == 12)


def test_which_vocabulary(checkpoint: Path) -> None:
    (checkpoint / "vocab.txt").rename(checkpoint / "vocab-a.txt")
    import_model(checkpoint, "model")
    shutil.copy(VOCABULARY, checkpoint / "vocab-b.txt")
    with pytest.raises(ValueError, match="has no vocabulary, or several; give --vocab-file"):
        import_model(checkpoint, "other")
    assert not Path("other").exists()
