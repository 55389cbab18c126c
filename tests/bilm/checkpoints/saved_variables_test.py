import json
import shutil
import tracemalloc
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    make_language_model,
    open_weights,
    published_name,
    read_accumulators,
    read_options,
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
def test_published_name(name, expected):
    assert published_name(name) == expected


def read(weights, name):
    return np.concatenate([block for _, block in weights.blocks(name)])


def test_all_forms_have_the_same_variables(tmp_path):
    with open_weights(CHECKPOINT) as checkpoint:
        options = read_options(VALUES, "here", checkpoint)
        bilm, softmax = make_language_model(options, checkpoint)
    model = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax})
    torch.save(model.state_dict(), tmp_path / "best.th")
    softmax_shapes = {"softmax/W": (50, 8), "softmax/b": (50,)}
    with (
        open_weights(REFERENCE / "checkpoint" / "weights.hdf5") as dumped,
        open_weights(tmp_path / "best.th") as state_dict,
    ):
        assert dumped.n_words is None and checkpoint.n_words == state_dict.n_words == 50
        assert checkpoint.shapes == {**dumped.shapes, **softmax_shapes} == state_dict.shapes
        for name in checkpoint.shapes:
            expected = read(checkpoint, name)
            assert np.array_equal(read(state_dict, name), expected), name
            if name in dumped.shapes:
                assert np.array_equal(read(dumped, name), expected), name
    accumulators, n_updates = read_accumulators(CHECKPOINT)
    assert accumulators.shapes == checkpoint.shapes and n_updates == 30


def test_options_are_completed():
    with open_weights(f"{CHECKPOINT}.index") as weights:
        expected = BiLmOptions.from_dict(VALUES)
        expected = replace(expected, project_lstm=True, project_characters=True)
        assert read_options(VALUES, "here", weights) == expected
        completed = read_options({"char_cnn": {"activation": "relu"}}, "here", weights)
    assert (completed.lstm_dim, completed.projection_dim, completed.n_layers) == (16, 8, 2)
    assert completed.char_cnn == expected.char_cnn
    assert completed.bidirectional and completed.n_tokens_vocab == 50


N_WORDS, DIM = 200_000, 16
TOKENS = BiLmOptions(lstm_dim=4, projection_dim=4, n_tokens_vocab=3, bidirectional=False)
ARRAYS = {
    "lm/embedding": np.linspace(0, 1, 12).reshape(3, 4),
    "lm/rnn/lstm_cell/kernel": np.zeros((8, 16), "float32"),
    "lm/rnn/lstm_cell/bias": np.zeros(16, "float32"),
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("form", ["checkpoint", "hdf5"])
def test_tables_are_read_where_they_belong(tied, form, tmp_path):
    """Never is there a second copy of one, whatever it is saved in."""
    options = BiLmOptions(
        lstm_dim=16, projection_dim=DIM, n_tokens_vocab=N_WORDS, share_embedding_softmax=tied
    )
    rng = np.random.RandomState(0)
    arrays = {"embedding": rng.standard_normal((N_WORDS, DIM)).astype("float32")}
    arrays["softmax/b"] = np.arange(N_WORDS, dtype="float32")
    arrays["softmax/W"] = arrays["embedding"] if tied else -arrays["embedding"]
    for direction in range(2):
        cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell0/LSTMCell"
        arrays[f"{cell}/W_0"] = np.ones((2 * DIM, 64), "float32")
        arrays[f"{cell}/B"] = np.ones(64, "float32")
    if form == "checkpoint":
        write_checkpoint(tmp_path / "x", {f"lm/{name}": arrays[name] for name in arrays})
    else:
        with h5py.File(tmp_path / "x", "w") as file:
            for name, values in arrays.items():
                file[name] = values
    tracemalloc.start()
    try:
        with open_weights(tmp_path / "x") as weights:
            bilm, softmax = make_language_model(options, weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (softmax.weight is bilm.token_layer.weight) == tied
    for name, table in (
        ("embedding", bilm.token_layer.weight),
        ("softmax/W", softmax.weight),
        ("softmax/b", softmax.bias),
    ):
        assert np.array_equal(table.detach().numpy(), arrays[name]), name
    # NumPy's arrays are traced.
    assert peak < 0.5 * arrays["embedding"].nbytes


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
    with pytest.raises(ValueError, match="x: the variable 'embedding' contains NaN or infinity"):
        make(tmp_path / "x", {**arrays, "lm/embedding": too_large})
    with pytest.raises(ValueError, match="x: the variable 'embedding' is missing, or has no float"):
        make(tmp_path / "x", {**arrays, "lm/embedding": np.ones((3, 4), "int32")})


@pytest.mark.parametrize("place", [0, -1])
def test_tied_tables_that_differ(place, tmp_path):
    """In the first or in the last of several blocks."""
    options = replace(TOKENS, n_tokens_vocab=N_WORDS, share_embedding_softmax=True)
    arrays = {
        **ARRAYS,
        "lm/embedding": np.ones((N_WORDS, 4), "float32"),
        "lm/softmax/W": np.ones((N_WORDS, 4), "float32"),
        "lm/softmax/b": np.zeros(N_WORDS, "float32"),
    }
    _, softmax = make(tmp_path / "x", arrays, options)
    assert bool((softmax.weight == 1).all())
    arrays["lm/softmax/W"][place, 0] = 2.0
    with pytest.raises(ValueError, match="x: 'softmax/W' is not the token embedding"):
        make(tmp_path / "x", arrays, options)


def test_a_softmax_without_a_weight_is_tied(tmp_path):
    write_checkpoint(tmp_path / "x", {**ARRAYS, "lm/softmax/b": np.arange(3, dtype="float32")})
    with open_weights(tmp_path / "x") as weights:
        options = read_options({}, "here", weights)
        assert options.share_embedding_softmax and options.n_tokens_vocab == 3
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


def test_sizes_are_compared_before_there_is_memory_for_them(tmp_path):
    """Also that of the softmax, and what an index says of data that isn't there."""
    huge = 2**31 - 1
    with open_weights(CHECKPOINT) as weights:
        for change, message in (
            ({"lstm": {**VALUES["lstm"], "dim": huge}}, '"lstm.dim" is 2147483647, but .* has 16'),
            ({"lstm": {**VALUES["lstm"], "n_layers": huge}}, '"lstm.n_layers" is .* has 2'),
            ({"n_tokens_vocab": huge}, '"n_tokens_vocab" is 2147483647, but .* has 50'),
            (
                {"lstm": {**VALUES["lstm"], "projection_dim": 16}},
                '"lstm.projection_dim" is 16, .* 8',
            ),
        ):
            with pytest.raises(ValueError, match=f"^here: {message}"):
                read_options({**VALUES, **change}, "here", weights)
        options = read_options(VALUES, "here", weights)
    weights.shapes["softmax/W"] = (50, huge)
    with pytest.raises(ValueError, match="'softmax/W' has shape .50, 2147483647., but .* .50, 8."):
        make_language_model(options, weights)
    shutil.copytree(REFERENCE / "checkpoint", tmp_path / "cut")
    data = tmp_path / "cut" / "model.ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(ValueError, match="data-00000-of-00001: is cut off"):
        with open_weights(tmp_path / "cut" / "model.ckpt-30"):
            pass


@pytest.mark.parametrize("characters", [True, False])
def test_state_dicts_that_are_not_those_of_a_model(characters, tmp_path):
    char_cnn = {"embedding": {"dim": 3}, "filters": [[1, 3], [60, 5]], "n_highway": 1}
    char_cnn.update(activation="relu", max_characters_per_token=70)
    values = {"lstm": {"dim": 6, "projection_dim": 4, "n_layers": 2}, "n_tokens_vocab": 7}
    options = BiLmOptions.from_dict({**values, "char_cnn": char_cnn if characters else None})
    model = torch.nn.ModuleDict({"bilm": BiLm(options), "softmax": Softmax(7, 4)})
    state, path = model.state_dict(), tmp_path / "best.th"

    def opened(changed):
        torch.save(changed, path)
        with open_weights(path) as weights:
            return weights

    bilm, softmax = make_language_model(options, opened(state))
    made = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax}).state_dict()
    assert all(torch.equal(made[name], values) for name, values in state.items())
    for name in state:
        others = {key: each for key, each in state.items() if key != name}
        for changed in (others, {**others, name: torch.zeros(2, 2, 2, 2)}):
            with pytest.raises(ValueError, match="^(/.*best.th: |.* but /.*best.th has)"):
                opened(changed)
    with pytest.raises(ValueError, match="best.th: .* does not have the parameter 'more'"):
        opened({**state, "more": torch.zeros(3)})
    with pytest.raises(ValueError, match='best.th: "lstm.dim" is missing'):
        opened({"x": torch.zeros(3)})
