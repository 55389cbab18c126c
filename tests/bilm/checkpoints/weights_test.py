from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets, softmax_datasets
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import open_weights, read_options
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights, write_softmax, write_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_arrays

SOURCE = REFERENCE / "checkpoint"
WEIGHTS = SOURCE / "weights.hdf5"


@pytest.fixture
def bilm():
    options = BiLmOptions.from_file(REFERENCE / "checkpoint" / "options_inference.json")
    return BiLm(options)


def test_what_bilm_tf_wrote_comes_back_bit_for_bit(bilm, tmp_path):
    source = WEIGHTS
    read_weights(source, bilm)
    write_weights(tmp_path / "weights.hdf5", bilm)
    expected, written = read_arrays(source), read_arrays(tmp_path / "weights.hdf5")
    assert set(written) == set(expected)
    for name, array in expected.items():
        assert written[name].dtype == np.float32
        assert np.array_equal(written[name], array), name
    assert [path.name for path in tmp_path.iterdir()] == ["weights.hdf5"]


@pytest.mark.parametrize(
    "forget_bias, bidirectional, dim, characters",
    [(0.0, True, 8, True), (1.0, False, 8, False), (0.0, False, 16, True), (1.0, True, 16, False)],
)
def test_every_kind_of_model_comes_back(forget_bias, bidirectional, dim, characters, tmp_path):
    values = {
        "lstm": {"dim": dim, "projection_dim": 8, "n_layers": 1},
        "n_tokens_vocab": 11,
        "bidirectional": bidirectional,
    }
    if characters:
        values["char_cnn"] = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 5]]}
    options = BiLmOptions.from_dict(values)
    bilm, other = (BiLm(options, forget_bias) for _ in range(2))
    write_weights(tmp_path / "weights.hdf5", bilm)
    del values["bidirectional"]
    with open_weights(tmp_path / "weights.hdf5") as variables:
        assert read_options(values, "here", variables).bidirectional == bidirectional
    read_weights(tmp_path / "weights.hdf5", other)
    for (name, actual), expected in zip(other.named_parameters(), bilm.parameters()):
        torch.testing.assert_close(actual, expected, atol=1e-7, rtol=0, msg=name)


@pytest.mark.parametrize("project", [None, True, False])
@pytest.mark.parametrize("n_layers, n_highway", [(1, 0), (2, 2)])
@pytest.mark.parametrize("dim", [8, 16])
def test_the_table_has_each_number_of_a_model_once(project, n_layers, n_highway, dim):
    """In both directions, and without a model of these sizes."""
    char_cnn = {"embedding": {"dim": 3}, "filters": [[1, 3], [2, 5]], "n_highway": n_highway}
    lstm = {"dim": dim, "projection_dim": 8, "n_layers": n_layers}
    for section in ({"char_cnn": char_cnn}, {"n_tokens_vocab": 11}):
        for bidirectional in (True, False):
            if dim != 8 and project is False:
                continue  # a projection is needed
            options = replace(
                BiLmOptions.from_dict({"lstm": lstm, "bidirectional": bidirectional, **section}),
                project_lstm=project,
                project_characters=project,
            )
            state = BiLm(options).state_dict()
            found = {name: torch.full_like(values, -1) for name, values in state.items()}
            n_numbers = 0
            for dataset in datasets(options):
                values = dataset.get(state)
                assert tuple(values.shape) == dataset.shape
                n_numbers += values.numel()
                # Row by row, as from a file.
                for start in range(len(values)):
                    dataset.set(found, values[start : start + 1], start)
            padding = {"_token_embedder._char_embedding_weights": 3}
            assert n_numbers == sum(v.numel() - padding.get(k, 0) for k, v in state.items())
            for name, values in state.items():
                first = 1 if name in padding else 0
                assert torch.equal(found[name][first:], values[first:]), name


def test_the_table_of_a_softmax():
    softmax = Softmax(11, 3)
    state = softmax.state_dict()
    for dataset, (name, values) in zip(softmax_datasets(11, 3), sorted(state.items())[::-1]):
        assert torch.equal(dataset.get(state), values), name


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
    "layers": (
        lambda file: file.create_dataset(KERNEL.replace("Cell0", "Cell2"), data=np.zeros(3)),
        "has the variable 'RNN_1.*Cell2.*', which a model of these options does not have",
    ),
    "highway": (
        lambda file: file.create_dataset("CNN_high_1/W_carry", data=np.zeros(3)),
        "has the variable 'CNN_high_1/W_carry', which a model of these options does not",
    ),
    "filters": (
        lambda file: file.create_dataset("CNN/W_cnn_3", data=np.zeros(3)),
        "has the variable 'CNN/W_cnn_3', which a model of these options does not have",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_file_is_refused_whole(case, bilm, tmp_path):
    change, message = BROKEN[case]
    path = tmp_path / "weights.hdf5"
    path.write_bytes((WEIGHTS).read_bytes())
    with h5py.File(path, "r+") as file:
        change(file)
    before = [parameter.clone() for parameter in bilm.parameters()]
    with pytest.raises(ValueError, match=f"weights.hdf5: .*{message}"):
        read_weights(path, bilm)
    assert all(torch.equal(*each) for each in zip(before, bilm.parameters()))


def test_files_that_are_no_weights(bilm, tmp_path):
    path = tmp_path / "weights.hdf5"
    for content in (b"", b"version https://git-lfs.github.com", WEIGHTS.read_bytes()[:20_000]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="weights.hdf5: not an HDF5 file, or one cut off"):
            read_weights(path, bilm)
    with pytest.raises(ValueError, match="not a file; expected weights"):
        read_weights(tmp_path, bilm)
    with pytest.raises(FileNotFoundError, match="no such weight file"):
        read_weights(tmp_path / "other.hdf5", bilm)


def test_a_failed_write_leaves_nothing(bilm, tmp_path, monkeypatch):
    monkeypatch.setattr(h5py.File, "create_dataset", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_weights(tmp_path / "weights.hdf5", bilm)
    assert list(tmp_path.iterdir()) == []


def test_softmax_file(tmp_path):
    softmax = Softmax(11, 3)
    write_softmax(tmp_path / "softmax.hdf5", softmax)
    arrays = read_arrays(tmp_path / "softmax.hdf5")
    assert np.array_equal(arrays["softmax/W"], softmax.weight.detach())
    assert np.array_equal(arrays["softmax/b"], softmax.bias.detach())
