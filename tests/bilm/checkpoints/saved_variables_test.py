import json
import shutil
import tracemalloc
from dataclasses import replace

import h5py
import numpy as np
import pytest

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    CheckpointVariables,
    Hdf5Variables,
    find_variables,
    make_language_model,
    published_name,
    read_options,
)
from allennlp_elmo_plugin.bilm.checkpoints.tensorflow_checkpoint import TensorFlowCheckpoint
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint

CELL = "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell"


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


def test_both_forms_have_the_same_variables():
    checkpoint = CheckpointVariables(TensorFlowCheckpoint(REFERENCE / "checkpoint"))
    dumped = Hdf5Variables(REFERENCE / "checkpoint" / "weights.hdf5")
    softmax = {"softmax/W": (50, 8), "softmax/b": (50,)}
    assert checkpoint.shapes == {**dumped.shapes, **softmax}
    for name in dumped.shapes:
        found, expected = (
            np.concatenate([block for _, block in each.blocks(name)])
            for each in (checkpoint, dumped)
        )
        assert np.array_equal(found, expected), name
    assert dumped.adagrad_state() is None
    accumulators, n_updates = checkpoint.adagrad_state()
    assert accumulators.shapes == checkpoint.shapes and n_updates == 30


def test_find(tmp_path):
    (tmp_path / "weights.hdf5").write_text("no HDF5")
    with pytest.raises(ValueError, match="not an HDF5 file"):
        find_variables(tmp_path)
    write_checkpoint(tmp_path / "model.ckpt-1", {"lm/x": np.zeros(1, "float32")})
    assert set(find_variables(tmp_path).shapes) == {"x"}
    assert set(find_variables(tmp_path / "model.ckpt-1").shapes) == {"x"}
    (tmp_path / "model.ckpt-1.index").unlink()
    (tmp_path / "weights.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match="neither a checkpoint of TensorFlow"):
        find_variables(tmp_path)


def test_options_are_completed():
    path = REFERENCE / "checkpoint" / "options.json"
    options = json.loads(path.read_text("utf-8"))
    variables = find_variables(REFERENCE / "checkpoint")
    expected = BiLmOptions.from_dict(options)
    expected = replace(expected, project_lstm=True, project_characters=True)
    assert read_options(options, "here", variables) == expected
    completed = read_options({"char_cnn": {}}, "here", variables)
    assert (completed.lstm_dim, completed.projection_dim, completed.n_layers) == (16, 8, 2)
    assert completed.char_cnn.filters == ((1, 4), (2, 8), (3, 16))
    assert (completed.char_cnn.embedding_dim, completed.char_cnn.n_highway) == (4, 1)
    assert completed.bidirectional and completed.n_tokens_vocab == 50


N_WORDS, DIM = 200_000, 16


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
        variables = find_variables(tmp_path)
    else:
        with h5py.File(tmp_path / "weights.hdf5", "w") as file:
            for name, values in arrays.items():
                file[name] = values
        variables = Hdf5Variables(tmp_path / "weights.hdf5")
    tracemalloc.start()
    try:
        bilm, softmax = make_language_model(options, variables)
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


def test_numbers_that_are_not_float32(tmp_path):
    options = BiLmOptions(lstm_dim=4, projection_dim=4, n_tokens_vocab=3, bidirectional=False)
    arrays = {
        "lm/embedding": np.linspace(0, 1, 12).reshape(3, 4),
        "lm/rnn/lstm_cell/kernel": np.zeros((8, 16), "float32"),
        "lm/rnn/lstm_cell/bias": np.zeros(16, "float32"),
    }
    write_checkpoint(tmp_path / "x", arrays)
    bilm, _ = make_language_model(options, find_variables(tmp_path))
    found = bilm.token_layer.weight.detach().numpy()
    assert np.array_equal(found, arrays["lm/embedding"].astype("float32"))
    arrays["lm/embedding"][1, 2] = 1e300
    write_checkpoint(tmp_path / "x", arrays)
    with pytest.raises(ValueError, match="'embedding' contains NaN or infinity"):
        make_language_model(options, find_variables(tmp_path))
    arrays["lm/embedding"] = np.ones((3, 4), "int32")
    write_checkpoint(tmp_path / "x", arrays)
    with pytest.raises(ValueError, match="x: 'lm/embedding' has no floating-point numbers"):
        make_language_model(options, find_variables(tmp_path))


def test_variables_of_other_types_that_the_model_lacks(tmp_path):
    options = BiLmOptions(lstm_dim=4, projection_dim=4, n_tokens_vocab=3, bidirectional=False)
    arrays = {
        "lm/embedding": np.ones((3, 4), "float32"),
        "lm/rnn/lstm_cell/kernel": np.zeros((8, 16), "float32"),
        "lm/rnn/lstm_cell/bias": np.zeros(16, "float32"),
        "lm/counter": np.array(3, "int64"),
        "lm/flag": np.array(1, "uint8"),
    }
    write_checkpoint(tmp_path / "x", arrays)
    bilm, _ = make_language_model(options, find_variables(tmp_path))
    assert bool((bilm.token_layer.weight == 1).all())


@pytest.mark.parametrize("place", [0, -1])
def test_tied_tables_that_differ(place, tmp_path):
    """In the first or in the last of several blocks."""
    options = BiLmOptions(
        lstm_dim=16,
        projection_dim=DIM,
        n_tokens_vocab=N_WORDS,
        share_embedding_softmax=True,
        bidirectional=False,
    )
    arrays = {
        "lm/embedding": np.ones((N_WORDS, DIM), "float32"),
        "lm/softmax/W": np.ones((N_WORDS, DIM), "float32"),
        "lm/softmax/b": np.zeros(N_WORDS, "float32"),
        "lm/rnn/lstm_cell/kernel": np.zeros((2 * DIM, 64), "float32"),
        "lm/rnn/lstm_cell/bias": np.zeros(64, "float32"),
    }
    write_checkpoint(tmp_path / "x", arrays)
    _, softmax = make_language_model(options, find_variables(tmp_path))
    assert bool((softmax.weight == 1).all())
    arrays["lm/softmax/W"][place, 0] = 2.0
    write_checkpoint(tmp_path / "x", arrays)
    with pytest.raises(ValueError, match="'softmax/W' is not the token embedding"):
        make_language_model(options, find_variables(tmp_path))


def test_two_names_of_one_variable(tmp_path):
    names = ["rnn/lstm_cell/bias", "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"]
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name in names:
            file[name] = np.zeros(4, "float32")
    with pytest.raises(ValueError, match="weights.hdf5: '.*' and '.*' are two names of one"):
        find_variables(tmp_path)
    write_checkpoint(tmp_path / "x", {f"lm/{name}": np.zeros(4, "float32") for name in names})
    with pytest.raises(ValueError, match="x: '.*' and '.*' are two names of one variable"):
        find_variables(tmp_path)


@pytest.mark.parametrize("value", [[1, 2], -1, np.nan, np.inf])
def test_number_of_updates(value, tmp_path):
    arrays = {"lm/x": np.zeros(1, "float32"), "lm/x/Adagrad": np.ones(1, "float32")}
    write_checkpoint(tmp_path / "x", arrays)
    assert find_variables(tmp_path).adagrad_state()[1] == 0
    write_checkpoint(tmp_path / "x", {**arrays, "global_step": np.array(value, "float32")})
    with pytest.raises(ValueError, match="x: 'global_step' must be one number"):
        find_variables(tmp_path).adagrad_state()


def test_sizes_are_compared_before_there_is_memory_for_them(tmp_path):
    """Also that of the softmax, and what an index says of data that isn't there."""
    checkpoint = REFERENCE / "checkpoint"
    variables = find_variables(checkpoint)
    values = json.loads((checkpoint / "options.json").read_text("utf-8"))
    huge = 2**31 - 1
    for change, message in (
        ({"lstm": {**values["lstm"], "dim": huge}}, '"lstm.dim" is 2147483647, but .* has 16'),
        ({"lstm": {**values["lstm"], "n_layers": huge}}, '"lstm.n_layers" is .* has 2'),
        ({"n_tokens_vocab": huge}, '"n_tokens_vocab" is 2147483647, but .* has 50'),
        ({"lstm": {**values["lstm"], "projection_dim": 16}}, '"lstm.projection_dim" is 16, .* 8'),
    ):
        with pytest.raises(ValueError, match=f"^here: {message}"):
            read_options({**values, **change}, "here", variables)
    shapes = variables.shapes
    shapes["softmax/W"] = (50, huge)
    options = read_options(values, "here", variables)
    with pytest.raises(ValueError, match="'softmax/W' has shape .50, 2147483647., but .* .50, 8."):
        make_language_model(options, variables)
    shutil.copytree(checkpoint, tmp_path / "cut")
    data = tmp_path / "cut" / "model.ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(ValueError, match="data-00000-of-00001: is cut off"):
        make_language_model(options, find_variables(tmp_path / "cut"))
