"""The weights of a model are the same in each of its files, and are read once, checked first."""

import json
import shutil
import tracemalloc
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.checkpoints import saved_variables
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    make_language_model,
    open_weights,
    published_name,
    read_accumulators,
    read_options,
    weights_of_state_dict,
)
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint

CELL = "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell"
CHECKPOINT = REFERENCE / "checkpoint" / "model.ckpt-30"
VALUES = json.loads((REFERENCE / "checkpoint" / "options.json").read_text("utf-8"))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel", f"{CELL}/W_0"),
        ("RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/bias", f"{CELL}/B"),
        ("RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/projection/kernel", f"{CELL}/W_P_0"),
        (f"{CELL}/W_0", f"{CELL}/W_0"),
        # One layer.
        ("RNN_1/rnn/lstm_cell/bias", "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B"),
        ("RNN_1/RNN/LSTMCell/W_P_0", "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"),
        # Forward only.
        ("rnn/multi_rnn_cell/cell_1/lstm_cell/kernel", f"{CELL}/W_0"),
        ("rnn/MultiRNNCell/Cell1/LSTMCell/projection/kernel", f"{CELL}/W_P_0"),
        ("CNN_high_0/W_carry", "CNN_high_0/W_carry"),
        ("softmax/W", "softmax/W"),
    ],
)
def test_names_of_bilm_tf(name, expected):
    assert published_name(name) == expected


def read(weights, name):
    return torch.cat([block for _, block in weights.read(name)]).numpy()


def shapes(weights):
    return {name: variable.shape for name, variable in weights.variables.items()}


def test_all_files_have_the_same_variables():
    with open_weights(CHECKPOINT) as checkpoint:
        options = read_options(VALUES, "here", checkpoint)
        bilm, softmax = make_language_model(options, checkpoint)
    tensors = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax}).state_dict()
    state_dict = weights_of_state_dict("best.th", tensors, options)
    softmax_shapes = {"softmax/W": (50, 8), "softmax/b": (50,)}
    with open_weights(REFERENCE / "checkpoint" / "weights.hdf5") as dumped:
        assert dumped.n_words is None and checkpoint.n_words == state_dict.n_words == 50
        assert shapes(checkpoint) == {**shapes(dumped), **softmax_shapes} == shapes(state_dict)
        for name in checkpoint.variables:
            expected = read(checkpoint, name)
            assert np.array_equal(read(state_dict, name), expected), name
            if name in dumped.variables:
                assert np.array_equal(read(dumped, name), expected), name
    accumulators, n_updates = read_accumulators(CHECKPOINT)
    assert shapes(accumulators) == shapes(checkpoint) and n_updates == 30


def test_weights_complete_the_options():
    with open_weights(f"{CHECKPOINT}.index") as weights:
        expected = BiLmOptions.from_dict({**VALUES, "bidirectional": True})
        expected = replace(expected, project_lstm=True, project_characters=True)
        given = {**VALUES, "bidirectional": None, "n_tokens_vocab": 7}  # with unroll_steps
        assert read_options(given, "here", weights) == replace(expected, n_tokens_vocab=50)
        with pytest.raises(ValueError, match='^here: "lstm.dim" is missing'):
            read_options({}, "here", weights)


N_WORDS, DIM = 200_000, 16


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("form", ["checkpoint", "hdf5", "compressed"])
def test_tables_are_read_where_they_belong(tied, form, tmp_path):
    """Never is there a second copy of one, whatever it is saved in."""
    options = BiLmOptions(
        lstm_dim=16, projection_dim=DIM, n_tokens_vocab=N_WORDS, share_embedding_softmax=tied
    )
    rng = np.random.RandomState(0)
    arrays = {"embedding": rng.standard_normal((N_WORDS, DIM)).astype("float32")}
    arrays["softmax/b"] = np.arange(N_WORDS, dtype="float32")
    if not tied:
        arrays["softmax/W"] = -arrays["embedding"]
    for direction in range(2):
        cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell0/LSTMCell"
        arrays[f"{cell}/W_0"] = np.ones((2 * DIM, 64), "float32")
        arrays[f"{cell}/B"] = np.ones(64, "float32")
    if form == "checkpoint":
        write_checkpoint(tmp_path / "x", {f"lm/{name}": arrays[name] for name in arrays})
    else:
        with h5py.File(tmp_path / "x", "w") as file:
            for name, values in arrays.items():
                packing = {"compression": "lzf", "chunks": True} if form == "compressed" else {}
                file.create_dataset(name, data=values, **packing)
    tracemalloc.start()
    try:
        with open_weights(tmp_path / "x") as weights:
            bilm, softmax = make_language_model(options, weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (softmax.weight is bilm.token_layer.weight) == tied
    weight = arrays["embedding"] if tied else arrays["softmax/W"]
    for table, expected in (
        (bilm.token_layer.weight, arrays["embedding"]),
        (softmax.weight, weight),
        (softmax.bias, arrays["softmax/b"]),
    ):
        assert np.array_equal(table.detach().numpy(), expected)
        assert table.requires_grad
    # NumPy's arrays are traced.
    assert peak < 0.5 * arrays["embedding"].nbytes


def test_blocks_of_compressed_data_have_whole_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_variables, "_BLOCK", 45)
    values = np.random.RandomState(0).standard_normal((30, 20)).astype("float32")
    with h5py.File(tmp_path / "x", "w") as file:
        file["plain"], file["wide"], file["empty"] = values, values.reshape(5, 120), values[:0]
        file.create_dataset("chunks", data=values, compression="gzip", chunks=(7, 3))
    with open_weights(tmp_path / "x") as weights:
        for name, n_rows in (("plain", 2), ("chunks", 7), ("wide", 1)):
            starts = [start for start, _ in weights.read(name)]
            assert starts == list(range(0, weights.variables[name].shape[0], n_rows))
            assert np.array_equal(read(weights, name).reshape(30, 20), values)
        assert list(weights.read("empty")) == []
    with h5py.File(tmp_path / "x", "r") as file:
        chunk = file["chunks"].id.get_chunk_info(0)
    data = bytearray((tmp_path / "x").read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + 40] = bytes(40)
    (tmp_path / "x").write_bytes(data)
    with open_weights(tmp_path / "x") as weights:
        with pytest.raises(ValueError, match="x: the variable 'chunks' can't be read, the file is"):
            read(weights, "chunks")


TOKENS = BiLmOptions(lstm_dim=4, projection_dim=4, n_tokens_vocab=3, bidirectional=False)
ARRAYS = {
    "lm/embedding": np.linspace(0, 1, 12).reshape(3, 4),
    "lm/rnn/lstm_cell/kernel": np.zeros((8, 16), "float32"),
    "lm/rnn/lstm_cell/bias": np.zeros(16, "float32"),
}


def make(path, arrays, options=TOKENS):
    write_checkpoint(path, arrays)
    with open_weights(path) as weights:
        return make_language_model(options, weights)


def test_numbers_that_are_not_float32(tmp_path):
    arrays = {**ARRAYS, "lm/counter": np.array(3, "int64"), "lm/flag": np.array(1, "uint8")}
    bilm, softmax = make(tmp_path / "x", arrays)
    found = bilm.token_layer.weight.detach().numpy()
    assert np.array_equal(found, ARRAYS["lm/embedding"].astype("float32")) and softmax is None
    too_large = np.full((3, 4), 1e300)
    with pytest.raises(ValueError, match="x.*: the variable 'embedding' contains NaN or infinity"):
        make(tmp_path / "x", {**arrays, "lm/embedding": too_large})
    with pytest.raises(ValueError, match="x: the variable 'embedding' is missing, or has no float"):
        make(tmp_path / "x", {**arrays, "lm/embedding": np.ones((3, 4), "int32")})


def test_a_softmax_without_a_weight_is_tied(tmp_path):
    write_checkpoint(tmp_path / "x", {**ARRAYS, "lm/softmax/b": np.arange(3, dtype="float32")})
    with open_weights(tmp_path / "x") as weights:
        options = read_options({"lstm": {"dim": 4, "projection_dim": 4}}, "here", weights)
        assert options.share_embedding_softmax and options.n_tokens_vocab == 3
        assert not options.bidirectional
        bilm, softmax = make_language_model(options, weights)
    assert softmax.weight is bilm.token_layer.weight and softmax.bias.tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [[1, 2], -1, np.nan, np.inf])
def test_number_of_updates(value, tmp_path):
    arrays = {"lm/x": np.zeros(1, "float32")}
    write_checkpoint(tmp_path / "x", arrays)
    assert read_accumulators(tmp_path / "x") is None
    arrays["lm/x/Adagrad"] = np.ones(1, "float32")
    write_checkpoint(tmp_path / "x", arrays)
    assert read_accumulators(tmp_path / "x")[1] == 0
    write_checkpoint(tmp_path / "x", {**arrays, "global_step": np.array(value, "float32")})
    with pytest.raises(ValueError, match="x: 'global_step' must be one number"):
        read_accumulators(tmp_path / "x")


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lstm": {**VALUES["lstm"], "dim": HUGE}}, "W_0' has shape .16, 64., but .* .16, 85"),
        ({"lstm": {**VALUES["lstm"], "n_layers": HUGE}}, "Cell2/LSTMCell/W_0' is missing"),
        ({"lstm": {**VALUES["lstm"], "n_layers": 1}}, "has the variable 'RNN_0.*Cell1.*', which"),
        ({"bidirectional": False}, "has the variable 'RNN_1.*', which the options don't"),
        ({"char_cnn": None}, "'embedding' is missing"),
        ({"char_cnn": {**VALUES["char_cnn"], "n_highway": HUGE}}, "'CNN_high_1.*' is missing"),
        ({"char_cnn": {**VALUES["char_cnn"], "n_highway": 0}}, "has the variable 'CNN_high_0"),
        ({"char_cnn": {**VALUES["char_cnn"], "filters": [[1, HUGE]]}}, "W_cnn_0' has shape"),
        ({"char_cnn": {**VALUES["char_cnn"], "embedding": {"dim": HUGE}}}, "'char_embed' has"),
    ],
)
def test_sizes_are_compared_before_there_is_memory_for_them(change, message):
    values = {**VALUES, "bidirectional": True, **change}
    with open_weights(CHECKPOINT) as weights:
        options = read_options(values, "here", weights)
        with pytest.raises(ValueError, match=f"model.ckpt-30.*: .*{message}"):
            make_language_model(options, weights)
        state = torch.nn.ModuleDict({"bilm": BiLm(BiLmOptions.from_dict(VALUES))}).state_dict()
        with pytest.raises(ValueError, match="^best.th: "):
            weights_of_state_dict("best.th", state, options)


def test_a_checkpoint_that_is_cut_off(tmp_path):
    shutil.copytree(REFERENCE / "checkpoint", tmp_path / "cut")
    data = tmp_path / "cut" / "model.ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(ValueError, match="data-00000-of-00001: is cut off"):
        with open_weights(tmp_path / "cut" / "model.ckpt-30"):
            pass


@pytest.mark.parametrize("characters", [True, False])
def test_state_dicts_that_are_not_those_of_a_model(characters):
    char_cnn = {"embedding": {"dim": 3}, "filters": [[1, 3], [60, 5]], "n_highway": 1}
    char_cnn.update(activation="relu", max_characters_per_token=70)
    values = {"lstm": {"dim": 6, "projection_dim": 4, "n_layers": 2}, "n_tokens_vocab": 7}
    options = BiLmOptions.from_dict({**values, "char_cnn": char_cnn if characters else None})
    state = torch.nn.ModuleDict({"bilm": BiLm(options), "softmax": Softmax(7, 4)}).state_dict()
    bilm, softmax = make_language_model(options, weights_of_state_dict("best.th", state, options))
    made = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax}).state_dict()
    assert all(torch.equal(made[name], values) for name, values in state.items())
    for name in state:
        others = {key: each for key, each in state.items() if key != name}
        for changed in (others, {**others, name: torch.zeros(2, 2, 2, 2)}):
            with pytest.raises(ValueError, match="^best.th: .*parameter '(bilm.)?.*'"):
                weights_of_state_dict("best.th", changed, options)
    with pytest.raises(ValueError, match="^best.th: .* has no parameter 'more' of the shape .3,."):
        weights_of_state_dict("best.th", {**state, "more": torch.zeros(3)}, options)
