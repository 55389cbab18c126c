"""The weights of a model are the same in each of its files, and are read once, checked first."""

import json
import tracemalloc
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.pretrained.checkpoints import saved_variables
from allennlp_elmo_plugin.pretrained.checkpoints.bilm_tf import BilmTf
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import (
    make_language_model,
    open_weights,
    read_accumulators,
    read_options,
    weights_of_state_dict,
)
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint

CHECKPOINT = REFERENCE / "checkpoint" / "model.ckpt-30"
VALUES = json.loads((REFERENCE / "checkpoint" / "options.json").read_text("utf-8"))


def read(weights, name):
    return torch.cat([block for _, block in weights.read(name)]).numpy()


def shapes(weights):
    return {name: variable.shape for name, variable in weights.variables.items()}


def test_a_checkpoint_completes_the_options():
    with open_weights(CHECKPOINT) as weights:
        settings = {**VALUES, "bidirectional": None, "n_tokens_vocab": 7}  # with unroll_steps
        options = read_options(settings, "here", weights)
    projections = {"project_lstm": True, "project_characters": True}
    assert options == replace(BiLmOptions.from_dict(VALUES), **projections)
    accumulators, n_updates = read_accumulators(CHECKPOINT)
    assert shapes(accumulators) == shapes(weights) and n_updates == 30


TOKENS = BiLmOptions(lstm_dim=4, projection_dim=4, n_tokens_vocab=3, bidirectional=False)
ARRAYS = {
    "lm/embedding": np.linspace(0, 1, 12).reshape(3, 4),
    "lm/rnn/lstm_cell/kernel": np.zeros((8, 16), "float32"),
    "lm/rnn/lstm_cell/bias": np.zeros(16, "float32"),
}


@pytest.mark.parametrize("tied", [False, True])
def test_tables_are_read_where_they_belong(tied, tmp_path, monkeypatch):
    """Never is there a second copy of one."""
    monkeypatch.setattr(saved_variables, "BLOCK", 2**15)
    n_words = 200_000
    options = replace(TOKENS, n_tokens_vocab=n_words, share_embedding_softmax=tied)
    table = np.random.RandomState(0).standard_normal((n_words, 4)).astype("float32")
    arrays = {**ARRAYS, "lm/embedding": table, "lm/softmax/b": table[:, 0]}
    if not tied:
        arrays["lm/softmax/W"] = -table
    with h5py.File(tmp_path / "x", "w") as file:
        for name, values in arrays.items():
            file[name[3:]] = values
    tracemalloc.start()  # NumPy's arrays are traced.
    try:
        with open_weights(tmp_path / "x") as weights:
            bilm, softmax = make_language_model(options, weights)
        assert tracemalloc.get_traced_memory()[1] < 0.5 * table.nbytes
    finally:
        tracemalloc.stop()
    assert (softmax.weight is bilm.token_layer.weight) == tied
    assert np.array_equal(bilm.token_layer.weight.detach(), table)
    assert np.array_equal(softmax.weight.detach(), table if tied else -table)
    assert np.array_equal(softmax.bias.detach(), table[:, 0])
    assert all(p.requires_grad for p in (*bilm.parameters(), *softmax.parameters()))


def test_blocks_of_compressed_data_have_whole_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_variables, "BLOCK", 45)
    values = np.random.RandomState(0).standard_normal((30, 20)).astype("float32")
    with h5py.File(tmp_path / "x", "w") as file:
        file["plain"], file["wide"] = values, values.reshape(5, 120)
        file.create_dataset("chunks", data=values, compression="gzip", chunks=(7, 3))
        chunk = file["chunks"].id.get_chunk_info(0)
    with open_weights(tmp_path / "x") as weights:
        for name, n_rows in (("plain", 2), ("chunks", 7), ("wide", 1)):
            starts = [start for start, _ in weights.read(name)]
            assert starts == list(range(0, weights.variables[name].shape[0], n_rows))
            assert np.array_equal(read(weights, name).reshape(30, 20), values)
    data = bytearray((tmp_path / "x").read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + 40] = bytes(40)
    (tmp_path / "x").write_bytes(data)
    with open_weights(tmp_path / "x") as weights:
        with pytest.raises(ValueError, match="x: the variable 'chunks' can't be read, the file is"):
            read(weights, "chunks")


def test_a_softmax_without_a_weight_is_tied(tmp_path):
    integers = {"lm/counter": np.array(3, "int64"), "lm/flag": np.array(1, "uint8")}
    write_checkpoint(tmp_path / "x", {**ARRAYS, **integers, "lm/softmax/b": np.arange(3.0)})
    with open_weights(tmp_path / "x") as weights:
        options = read_options({"lstm": {"dim": 4, "projection_dim": 4}}, "here", weights)
        bilm, softmax = make_language_model(options, weights)
    assert options == replace(TOKENS, share_embedding_softmax=True)
    assert softmax.weight is bilm.token_layer.weight and softmax.bias.tolist() == [0, 1, 2]
    assert np.array_equal(softmax.weight.detach(), ARRAYS["lm/embedding"].astype("float32"))


def test_number_of_updates(tmp_path):
    arrays = {"lm/x/Adagrad": np.ones(1, "float32")}
    write_checkpoint(tmp_path / "x", arrays)
    assert read_accumulators(tmp_path / "x")[1] == 0
    for value in ([1, 2], -1, np.nan, np.inf):
        write_checkpoint(tmp_path / "x", {**arrays, "global_step": np.array(value, "float32")})
        with pytest.raises(ValueError, match="x: 'global_step' must be one number"):
            read_accumulators(tmp_path / "x")


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "section, change, message",
    [
        ("lstm", {"dim": HUGE}, "W_0' has shape .16, 64., but .* .16, 85"),
        ("lstm", {"n_layers": HUGE}, "Cell2/LSTMCell/W_0' is missing"),
        ("char_cnn", {"n_highway": HUGE}, "'CNN_high_1.*' is missing"),
        ("char_cnn", {"n_highway": 0}, "has the variable 'CNN_high_0"),
        ("char_cnn", {"embedding": {"dim": HUGE}}, "'char_embed' has"),
        (None, {"char_cnn": None}, "'embedding' is missing"),
        (None, {"bidirectional": False}, "has the variable 'RNN_1.*', which the options don't"),
    ],
)
def test_sizes_are_compared_before_there_is_memory_for_them(section, change, message):
    change = {section: {**VALUES[section], **change}} if section else change
    options = BiLmOptions.from_dict({**VALUES, **change})
    with open_weights(CHECKPOINT) as weights:
        with pytest.raises(ValueError, match=f"model.ckpt-30.*: .*{message}"):
            BilmTf().check(read_options({**VALUES, **change}, "here", weights), weights)
        state = torch.nn.ModuleDict({"bilm": BiLm(BiLmOptions.from_dict(VALUES))}).state_dict()
        with pytest.raises(ValueError, match="^best.th: "):
            weights_of_state_dict("best.th", state, options)


@pytest.mark.parametrize("characters", [True, False])
def test_state_dicts_that_are_not_those_of_a_model(characters):
    options = BiLmOptions.from_dict(VALUES if characters else {**VALUES, "char_cnn": None})
    state = torch.nn.ModuleDict({"bilm": BiLm(options), "softmax": Softmax(50, 8)}).state_dict()
    bilm, softmax = make_language_model(options, weights_of_state_dict("best.th", state, options))
    loaded = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax}).state_dict()
    assert all(torch.equal(loaded[name], values) for name, values in state.items())
    for name in state:
        incomplete = {key: values for key, values in state.items() if key != name}
        for changed in (incomplete, {**incomplete, name: torch.zeros(2, 2, 2, 2)}):
            with pytest.raises(ValueError, match="^best.th: .*parameter '(bilm.)?.*'"):
                weights_of_state_dict("best.th", changed, options)
    with pytest.raises(ValueError, match="^best.th: .* has no parameter 'more' of the shape .3,."):
        weights_of_state_dict("best.th", {**state, "more": torch.zeros(3)}, options)
