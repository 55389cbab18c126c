import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.checkpoints.weights import (
    check_size,
    datasets,
    match_weight_file,
    read_weights,
    shapes_of,
    write_softmax,
    write_weights,
)
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.modules.elmo import _ElmoBiLm
from tests.support.bilm_tf import REFERENCE
from tests.support.testing import read_arrays, write_random_elmo


@pytest.fixture
def bilm():
    options = BiLmOptions.from_file(REFERENCE / "checkpoint" / "options_inference.json")
    return BiLm(options)


def test_what_bilm_tf_wrote_comes_back_bit_for_bit(bilm, tmp_path):
    source = REFERENCE / "checkpoint" / "weights.hdf5"
    read_weights(source, bilm)
    write_weights(tmp_path / "weights.hdf5", bilm)
    expected, written = read_arrays(source), read_arrays(tmp_path / "weights.hdf5")
    assert set(written) == set(expected)
    for name, array in expected.items():
        assert written[name].dtype == np.float32
        assert np.array_equal(written[name], array), name
    assert [path.name for path in tmp_path.iterdir()] == ["weights.hdf5"]


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("dim", [8, 16])
@pytest.mark.parametrize("characters", [True, False])
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
    assert match_weight_file(options, tmp_path / "weights.hdf5").bidirectional == bidirectional
    read_weights(tmp_path / "weights.hdf5", other)
    for (name, actual), expected in zip(other.named_parameters(), bilm.parameters()):
        torch.testing.assert_close(actual, expected, atol=1e-7, rtol=0, msg=name)


@pytest.mark.parametrize("project", [None, True, False])
@pytest.mark.parametrize("n_layers, n_highway", [(1, 0), (2, 2)])
@pytest.mark.parametrize("dim", [8, 16])
def test_shapes_are_known_without_a_model(project, n_layers, n_highway, dim):
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
            expected = [(dataset.name, dataset.shape) for dataset in datasets(BiLm(options))]
            assert list(shapes_of(options)) == expected


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "section, key, value",
    [
        ("lstm", "dim", HUGE),
        ("lstm", "n_layers", HUGE),
        ("char_cnn", "n_highway", HUGE),
        ("char_cnn", "filters", [[1, HUGE]]),
        ("char_cnn", "embedding", {"dim": HUGE}),
    ],
)
def test_sizes_are_compared_before_there_is_memory_for_them(section, key, value, monkeypatch):
    """Here and by those who make a model of the two files."""
    source = REFERENCE / "checkpoint"
    values = json.loads((source / "options_inference.json").read_text(encoding="utf-8"))
    values[section][key] = value
    options = BiLmOptions.from_dict(values)
    with pytest.raises(ValueError, match="weights.hdf5: the dataset .* (has shape|is missing)"):
        match_weight_file(options, source / "weights.hdf5")
    with pytest.raises(ValueError, match="^here: has 1,000 numbers, fewer than the options ask"):
        check_size(options, 1000, 0, "here")
    monkeypatch.setattr(BiLm, "__init__", lambda *_: pytest.fail("was made"))
    monkeypatch.setattr(
        "allennlp_elmo_plugin.bilm.options.BiLmOptions.from_file", lambda *_: options
    )
    with pytest.raises(ConfigurationError, match="weights.hdf5: the dataset"):
        _ElmoBiLm(str(source / "options.json"), str(source / "weights.hdf5"))


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
        "'char_embed' has values not finite",
    ),
    "infinity": (
        lambda file: file["CNN/b_cnn_0"].__setitem__(0, -np.inf),
        "'CNN/b_cnn_0' has values not finite",
    ),
    "too large for float32": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.full(4, 1e300)),
        "'CNN/b_cnn_0' has values not finite",
    ),
    "records": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.zeros(4, [("a", "f4")])),
        "'CNN/b_cnn_0' is not of floating-point numbers",
    ),
    "strings": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.array([b"1"] * 4)),
        "'CNN/b_cnn_0' is not of floating-point numbers",
    ),
    "whole numbers": (
        lambda file: replace_dataset(file, "CNN/b_cnn_0", np.zeros(4, "int32")),
        "'CNN/b_cnn_0' is not of floating-point numbers",
    ),
    "link": (
        lambda file: replace_dataset(file, "RNN_1", h5py.ExternalLink("/other.hdf5", "/")),
        "'RNN_1' is a link",
    ),
    "layers": (
        lambda file: file.create_group("RNN_0/RNN/MultiRNNCell/Cell2"),
        r'MultiRNNCell/Cell2\', but the options \("lstm.n_layers"\) end at 2 of these',
    ),
    "highway": (
        lambda file: file.create_group("CNN_high_1"),
        r'CNN_high_1\', but the options \("char_cnn.n_highway"\) end at 1 of these',
    ),
    "filters": (
        lambda file: file.create_group("CNN/W_cnn_3"),
        r'W_cnn_3\', but the options \("char_cnn.filters"\) end at 3 of these',
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_file_is_refused_whole(case, bilm, tmp_path):
    change, message = BROKEN[case]
    path = tmp_path / "weights.hdf5"
    path.write_bytes((REFERENCE / "checkpoint" / "weights.hdf5").read_bytes())
    with h5py.File(path, "r+") as file:
        change(file)
    before = [parameter.clone() for parameter in bilm.parameters()]
    with pytest.raises(ValueError, match=f"weights.hdf5: .*{message}"):
        read_weights(path, bilm)
    assert all(torch.equal(*each) for each in zip(before, bilm.parameters()))


@pytest.mark.parametrize("kept", [0, 5, 700, 20_000])
def test_a_file_cut_off_or_not_hdf5(kept, bilm, tmp_path):
    path = tmp_path / "weights.hdf5"
    path.write_bytes((REFERENCE / "checkpoint" / "weights.hdf5").read_bytes()[:kept])
    for read in (lambda: read_weights(path, bilm), lambda: match_weight_file(bilm.options, path)):
        with pytest.raises(ValueError, match="weights.hdf5: not an HDF5 file, or one cut off"):
            read()
    path.write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ValueError, match="not an HDF5 file"):
        read_weights(path, bilm)
    with pytest.raises(ValueError, match="is a folder, not a weight file"):
        read_weights(tmp_path, bilm)
    with pytest.raises(FileNotFoundError, match="no such weight file"):
        read_weights(tmp_path / "other.hdf5", bilm)


def test_weights_of_another_model(bilm, tmp_path):
    _, weight_file = write_random_elmo(tmp_path, lstm_dim=12)
    with pytest.raises(ValueError, match="is this the weight file that belongs to"):
        read_weights(weight_file, bilm)


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
