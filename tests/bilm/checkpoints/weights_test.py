"""weights.hdf5 as bilm-tf writes it, bit for bit, and files that are wrong refused whole."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import open_weights, read_options
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights, write_softmax, write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_arrays

WEIGHTS = REFERENCE / "checkpoint" / "weights.hdf5"


@pytest.fixture
def bilm():
    options = BiLmOptions.from_file(REFERENCE / "checkpoint" / "options_inference.json")
    return BiLm(options)


def test_what_bilm_tf_wrote_comes_back_bit_for_bit(bilm, tmp_path):
    read_weights(WEIGHTS, bilm)
    write_weights(tmp_path / "weights.hdf5", bilm)
    expected, written = read_arrays(WEIGHTS), read_arrays(tmp_path / "weights.hdf5")
    assert set(written) == set(expected)
    for name, array in expected.items():
        assert written[name].dtype == np.float32
        assert np.array_equal(written[name], array), name
    assert [path.name for path in tmp_path.iterdir()] == ["weights.hdf5"]


@pytest.mark.parametrize("project", [None, True, False])
@pytest.mark.parametrize("n_layers, n_highway", [(1, 0), (2, 2)])
@pytest.mark.parametrize("dim, forget_bias", [(8, 0.0), (16, 1.0)])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("characters", [True, False])
def test_every_kind_of_model_comes_back(
    project, n_layers, n_highway, dim, forget_bias, bidirectional, characters, tmp_path
):
    if dim != 8 and project is False:
        pytest.skip("a projection is needed")
    values = {"lstm": {"dim": dim, "projection_dim": 8, "n_layers": n_layers}, "n_tokens_vocab": 11}
    if characters:
        values["char_cnn"] = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 5]]}
        values["char_cnn"]["n_highway"] = n_highway
    options = replace(
        BiLmOptions.from_dict({**values, "bidirectional": bidirectional}),
        project_lstm=project,
        project_characters=project,
    )
    bilm, other = (BiLm(options, forget_bias) for _ in range(2))
    write_weights(tmp_path / "weights.hdf5", bilm)
    with open_weights(tmp_path / "weights.hdf5") as weights:
        found = read_options(values, "here", weights)
    assert found.bidirectional == bidirectional and found.projects_lstm == options.projects_lstm
    read_weights(tmp_path / "weights.hdf5", other)
    n_numbers = 0
    for (name, actual), expected in zip(other.named_parameters(), bilm.parameters()):
        torch.testing.assert_close(actual, expected, atol=1e-7, rtol=0, msg=name)
        n_numbers += actual.numel()
    # Each number once, except the row of the padding.
    padding = 3 if characters else 0
    assert sum(np.prod(each.shape) for each in datasets(options)) == n_numbers - padding


def test_blocks_of_any_rows_come_to_their_places():
    char_cnn = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 5]], "n_highway": 1}
    options = BiLmOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 4}, "char_cnn": char_cnn})
    state = BiLm(options).state_dict()
    found = {name: torch.zeros_like(values) for name, values in state.items()}
    for dataset in datasets(options, forget_bias=0.5):
        values = dataset.get(state)
        for start in reversed(range(0, len(values), 3)):
            dataset.set(found, values[start : start + 3], start)
    for name, values in state.items():
        torch.testing.assert_close(found[name], values, msg=name)


def replace_dataset(file, name, array):
    del file[name]
    file[name] = array


KERNEL = "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"
BROKEN = {
    "missing": (lambda file: file.__delitem__(KERNEL), f"{KERNEL}' is missing"),
    "shape": (
        lambda file: replace_dataset(file, KERNEL, np.zeros((3, 4), "float32")),
        rf"{KERNEL}' has shape \(3, 4\), but the options ask for \(16, 64\)",
    ),
    "group": (
        lambda file: (file.__delitem__("char_embed"), file.create_group("char_embed")),
        "'char_embed' is missing",
    ),
    "nan": (
        lambda file: file["char_embed"].__setitem__(0, np.nan),
        "'char_embed' contains NaN or infinity",
    ),
    "infinity": (
        lambda file: file["CNN/b_cnn_0"].__setitem__(0, -np.inf),
        "'CNN/b_cnn_0' contains NaN or infinity",
    ),
    "too large for float32": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.full(4, 1e300)),
        "'CNN/b_cnn_0' contains NaN or infinity",
    ),
    "whole numbers": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.zeros(4, "int32")),
        "'CNN/b_cnn_0' is missing, or has no floating-point numbers",
    ),
    "link": (
        lambda file: replace_dataset(file, "RNN_1", h5py.ExternalLink("/other.hdf5", "/")),
        "'RNN_1.*' is missing",
    ),
    **{
        name: (
            lambda file, name=name: file.create_dataset(name, data=np.zeros(3)),
            f"has the variable '{name}', which the options don't ask for",
        )
        for name in (KERNEL.replace("Cell0", "Cell2"), "CNN_high_1/W_carry", "CNN/W_cnn_3")
    },
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_file_is_refused_whole(case, bilm, tmp_path):
    change, message = BROKEN[case]
    path = tmp_path / "weights.hdf5"
    path.write_bytes(WEIGHTS.read_bytes())
    with h5py.File(path, "r+") as file:
        change(file)
    before = [parameter.clone() for parameter in bilm.parameters()]
    with pytest.raises(ValueError, match=f"weights.hdf5: .*{message}"):
        read_weights(path, bilm)
    assert all(torch.equal(*each) for each in zip(before, bilm.parameters()))


def test_a_failed_write_leaves_nothing(bilm, tmp_path):
    with torch.no_grad():
        bilm.lstm.forward_layers[0].state_linearity.bias[0] = 1e6
    with pytest.raises(ValueError, match="W_0|B' has numbers beyond those of float16"):
        write_weights(tmp_path / "weights.hdf5", bilm, "float16")
    assert list(tmp_path.iterdir()) == []


def test_half_the_size(bilm, tmp_path):
    write_weights(tmp_path / "half.hdf5", bilm, "float16")
    write_weights(tmp_path / "whole.hdf5", bilm)
    half, whole = (read_arrays(tmp_path / f"{name}.hdf5") for name in ("half", "whole"))
    for name, array in whole.items():
        assert half[name].dtype == np.float16
        assert np.array_equal(half[name], array.astype("float16"))


def test_softmax_file(tmp_path):
    softmax = Softmax(11, 3)
    write_softmax(tmp_path / "softmax.hdf5", softmax)
    arrays = read_arrays(tmp_path / "softmax.hdf5")
    assert np.array_equal(arrays["softmax/W"], softmax.weight.detach())
    assert np.array_equal(arrays["softmax/b"], softmax.bias.detach())
