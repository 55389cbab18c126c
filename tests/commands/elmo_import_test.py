"""`allennlp elmo-import`: checkpoints of bilm-tf and published models become archives."""

import json
import shutil
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from allennlp.models import load_archive

from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.pretrained.checkpoints.tensorflow_checkpoint import read_index
from tests.support import testing
from tests.support.bilm_tf import CHAR_CNN, LSTM, REFERENCE, load_run, read_vocabulary, variables
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import fork, read_arrays, read_files

VOCABULARY = REFERENCE / "data" / "vocab.txt"


@pytest.fixture
def checkpoint(run):
    """bilm-tf's own: a checkpoint, its options and, here, the vocabulary, but no weights.hdf5."""
    folder = Path("checkpoint")
    ignore = shutil.ignore_patterns("weights.hdf5", "options_inference.json")
    shutil.copytree(REFERENCE / "checkpoint", folder, ignore=ignore)
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    return folder


def load(output="model"):
    return load_archive(f"{output}/model.tar.gz").model


def test_checkpoint(checkpoint, run):
    """Imported and exported, it is what bilm-tf dumps."""
    (checkpoint / "weights.hdf5").write_text("not read")  # The checkpoint has more.
    assert run("elmo-import checkpoint model") == "Written to model: adagrad.hdf5, model.tar.gz\n"
    export("model/model.tar.gz", "elmo")
    expected = read_arrays(REFERENCE / "checkpoint" / "weights.hdf5")
    np.testing.assert_equal(read_arrays("elmo/weights.hdf5"), expected)
    _, arrays = load_run("train_charcnn")
    for name, values in read_arrays("elmo/softmax.hdf5").items():
        assert np.array_equal(values, arrays[f"final/lm/{name}"])
    assert Path("elmo/vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    config = load_archive("model/model.tar.gz").config.as_dict(quiet=True)
    assert config.pop("model")["options"]["char_cnn"]["n_characters"] == 262
    reader = {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 5, "bidirectional": True}
    reader["max_characters_per_token"] = 50
    assert config.pop("validation_dataset_reader") == {**reader, "drop_last": False}
    assert config == {"dataset_reader": reader, "data_loader": {"type": "truncated_bptt"}}


def test_accumulators_take_the_form_of_the_parameters(checkpoint):
    import_model(checkpoint, "model")
    model, accumulators = load(), read_arrays("model/adagrad.hdf5")
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(accumulators[name])
        assert parameter.min() >= 1.0
    assert bool((model.bilm.token_layer._char_embedding_weights[0] == 1.0).all())
    _, arrays = load_run("train_charcnn")
    renamed = {f"accum/{name}": values for name, values in variables(model)}
    assert renamed.keys() == {name for name in arrays if name.startswith("accum/")}
    for name, values in renamed.items():
        np.testing.assert_array_equal(values * (-1 if "carry" in name else 1), arrays[name], name)


def test_one_of_several_without_accumulators(checkpoint, run):
    index = read_index(checkpoint / "model.ckpt-30")
    values = {key: np.array(value.open()) for key, value in index.items() if "Ada" not in key}
    values["lm/softmax/b"] = values["lm/softmax/b"] + 1
    write_checkpoint(checkpoint / "model.ckpt-29", values)
    printed = run("elmo-import checkpoint/model.ckpt-29 model")
    assert printed == "Written to model: model.tar.gz\n"
    assert np.array_equal(load().softmax.bias.detach().numpy(), values["lm/softmax/b"])


def test_evaluate_gives_bilm_tfs_perplexity(checkpoint, run):
    import_model(checkpoint, "model")
    # bilm-tf's own test, with its windows.
    reader = "validation_dataset_reader"
    overrides = json.dumps({f"{reader}.drop_last": True, f"{reader}.num_steps": 1})
    text = REFERENCE / "data" / "test.txt"
    run("evaluate model/model.tar.gz --output-file metrics.json", text, "-o", overrides)
    metrics = json.loads(Path("metrics.json").read_text(encoding="utf-8"))
    expected = float(load_run("train_charcnn")[1]["test4/perplexity"])
    assert metrics["perplexity"] == pytest.approx(expected, rel=1e-6)


def test_a_full_disk_changes_nothing(checkpoint):
    """Wherever it happens: in the weights, the archive or the accumulators."""
    import_model(checkpoint, "model")
    before = read_files("model")

    def fill(n_bytes):
        testing.limit_file_size(n_bytes)
        with pytest.raises(OSError, match="cannot write: File too large; nothing .*/model'"):
            import_model(checkpoint, "model", force=True)

    for n_bytes in (100, 5000, max(map(len, before.values())) - 1):
        assert fork(partial(fill, n_bytes)) == 0 and read_files("model") == before


VARIANTS = [
    {"char_cnn": {**CHAR_CNN, "n_highway": 2, "activation": "tanh"}},
    {"char_cnn": {**CHAR_CNN, "n_highway": 0}},
    {"char_cnn": {**CHAR_CNN, "filters": [[1, 2], [2, 3]]}},  # no projection of characters
    {"char_cnn": {**CHAR_CNN, "max_characters_per_token": 30}, "lstm": {**LSTM, "dim": 5}},
    {"char_cnn": CHAR_CNN, "lstm": {**LSTM, "n_layers": 1}, "bidirectional": False},
    {"lstm": {**LSTM, "n_layers": 1}},
    {"lstm": {**LSTM, "n_layers": 3}, "bidirectional": False, "share_embedding_softmax": True},
]


def save(options):
    """Save a random model in the folder `saved`, as bilm-tf saves its own; return it."""
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(read_vocabulary(Path("words")), options=options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    if "char_cnn" in options:
        model.bilm.token_layer._char_embedding_weights.data[0] = 0.0
    Path("saved").mkdir()
    arrays = {"global_step": np.array(3, "int64")}
    for i, (name, values) in enumerate(variables(model)):
        if name == "lm/softmax/W" and model.options.share_embedding_softmax:
            continue
        # bilm-tf names the variables of some models in its own way.
        if model.options.n_layers == 1:
            name = name.replace("multi_rnn_cell/cell_0/", "")
        if not model.options.bidirectional:
            name = name.replace("RNN_0/", "")
        arrays[name] = values.copy()
        arrays[f"{name}/Adagrad"] = np.full(values.shape, 2.0 + i, "float32")
    write_checkpoint(Path("saved/model.ckpt-3"), arrays, n_shards=2)
    shutil.copy(VOCABULARY, "saved/vocab-2016.txt")
    return model


def assert_same_model(output, model):
    imported = load(output)
    actual, expected = (dict(module.named_parameters()) for module in (imported, model))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert imported.options.to_dict() == model.options.to_dict()


@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip(variant, run):
    model = save({"lstm": LSTM, "sample_softmax": False, **variant})
    # How many directions and words there are need not be said.
    left_out = ("bidirectional", "n_tokens_vocab")
    options = {key: value for key, value in model.options.to_dict().items() if key not in left_out}
    Path("saved/options.json").write_text(json.dumps(options), encoding="utf-8")
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


def test_a_published_model_gets_a_new_softmax(run):
    options = json.loads(Path(testing.write_random_elmo("elmo")[0]).read_text(encoding="utf-8"))
    Path("words").write_text("<S>\n</S>\n<UNK>\nthe\n,\nnaïve\n", encoding="utf-8")
    printed = run("elmo-import elmo model --vocab-file words")
    assert "There was no softmax to import: train a new one before you evaluate.\n" in printed
    archive = load_archive("model/model.tar.gz")
    assert archive.model.softmax.weight.shape == (6, 8)
    reader = archive.config.as_dict(quiet=True)["dataset_reader"]
    assert (reader["batch_size"], reader["num_steps"]) == (128, 20)
    # bilm-tf's default of samples is more than there are words.
    assert archive.model.softmax.sampler is None
    for n_samples, is_full in ((6, True), (5, False)):
        text = json.dumps({**options, "n_negative_samples_batch": n_samples})
        Path("elmo/options.json").write_text(text, encoding="utf-8")
        run("elmo-import elmo model --vocab-file words --force")
        assert (load().softmax.sampler is None) == is_full
