"""weights.hdf5 as bilm-tf writes it, bit for bit, and files that are wrong refused whole."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.pretrained.checkpoints import saved_variables
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import open_weights, read_options
from allennlp_elmo_plugin.pretrained.weight_file import read_weights, write_weights
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_arrays

WEIGHTS = REFERENCE / "checkpoint" / "weights.hdf5"


@pytest.fixture
def bilm():
    return BiLm(BiLmOptions.from_file(REFERENCE / "checkpoint" / "options_inference.json"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_bilm_tf_wrote_comes_back_bit_for_bit(dtype, bilm, tmp_path):
    read_weights(WEIGHTS, bilm)
    write_weights(tmp_path / "weights.hdf5", bilm, dtype)
    with torch.no_grad():
        bilm.lstm.forward_layers[0].state_linearity.bias[0] = 1e6
    with pytest.raises(ValueError, match="B' has numbers beyond those of float16"):
        write_weights(tmp_path / "too large", bilm, "float16")
    expected, written = read_arrays(WEIGHTS), read_arrays(tmp_path / "weights.hdf5")
    assert set(written) == set(expected)
    for name, array in expected.items():
        assert written[name].dtype == dtype
        assert np.array_equal(written[name], array.astype(dtype)), name


@pytest.mark.parametrize("project", [None, True, False])
@pytest.mark.parametrize("n_layers, n_highway", [(1, 0), (2, 2)])
@pytest.mark.parametrize("dim, forget_bias", [(8, 0.0), (16, 1.0)])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("characters", [True, False])
def test_every_kind_of_model_comes_back(
    project, n_layers, n_highway, dim, forget_bias, bidirectional, characters, tmp_path, monkeypatch
):
    monkeypatch.setattr(saved_variables, "BLOCK", 50)  # in several blocks
    values = {"lstm": {"dim": dim, "projection_dim": 8, "n_layers": n_layers}, "n_tokens_vocab": 11}
    if characters:
        values["char_cnn"] = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 5]]}
        values["char_cnn"]["n_highway"] = n_highway
    options = replace(
        BiLmOptions.from_dict({**values, "bidirectional": bidirectional}),
        project_lstm=project or (None if dim > 8 else project),
        project_characters=project,
    )
    bilm, other = (BiLm(options, forget_bias) for _ in range(2))
    write_weights(tmp_path / "weights.hdf5", bilm)
    with open_weights(tmp_path / "weights.hdf5") as weights:
        loaded = read_options(values, "here", weights)
    assert loaded.bidirectional == bidirectional and loaded.projects_lstm == options.projects_lstm
    read_weights(tmp_path / "weights.hdf5", other)
    n_numbers = 0
    for (name, actual), expected in zip(other.named_parameters(), bilm.parameters()):
        torch.testing.assert_close(actual, expected, atol=1e-7, rtol=0, msg=name)
        n_numbers += actual.numel()
    # Each number once, except the row of the padding.
    padding = 3 if characters else 0
    assert sum(np.prod(dataset.shape) for dataset in datasets(options)) == n_numbers - padding


KERNEL = "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"
NOT_FINITE = "contains NaN or infinity"
BROKEN = [
    (KERNEL, None, f"{KERNEL}' is missing"),
    ("char_embed", np.full((261, 4), np.nan), f"'char_embed' {NOT_FINITE}"),
    ("CNN/b_cnn_0", np.array([0, 0, np.inf, -np.inf]), f"'CNN/b_cnn_0' {NOT_FINITE}"),
    ("CNN/b_cnn_0", np.full(4, 1e300), f"'CNN/b_cnn_0' {NOT_FINITE}"),  # beyond float32
    ("CNN/b_cnn_0", np.zeros(4, "i4"), "'CNN/b_cnn_0' is missing, or has no floating-point"),
    ("RNN_1", h5py.ExternalLink("/other.hdf5", "/"), "'RNN_1.*' is missing"),
    ("CNN/W_cnn_3", np.zeros(3), "has the variable 'CNN/W_cnn_3', which the options don't ask for"),
]


@pytest.mark.parametrize("name, value, message", BROKEN)
def test_a_wrong_file_is_refused_whole(name, value, message, bilm, tmp_path):
    path = tmp_path / "weights.hdf5"
    path.write_bytes(WEIGHTS.read_bytes())
    with h5py.File(path, "r+") as file:
        if name in file:
            del file[name]
        if value is not None:
            file[name] = value
    before = [parameter.clone() for parameter in bilm.parameters()]
    with pytest.raises(ValueError, match=f"weights.hdf5: .*{message}"):
        read_weights(path, bilm)
    assert all(map(torch.equal, before, bilm.parameters()))
