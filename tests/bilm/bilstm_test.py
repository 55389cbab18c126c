import functools
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from allennlp_elmo_plugin.bilm import bilstm
from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn
from allennlp_elmo_plugin.bilm.lstm import run_layers
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.parallel import run_in_parallel

LSTM = {"cell_clip": 3, "dim": 6, "n_layers": 2, "proj_clip": 3, "projection_dim": 4}
OPTIONS = BiLmOptions.from_dict({"n_tokens_vocab": 10, "bidirectional": True, "lstm": LSTM})
DIRECTIONS = ["forward", "backward"]
# Tokens of each row for the forward and the backward direction
ROWS = {"the same": ([2, 0, 4], [2, 0, 4]), "others": ([2, 0, 4], [3, 1, 0])}
ROWS.update({"none forwards": ([0, 0], [4, 1]), "none backwards": ([4, 1], [0, 0])})


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("dropout", [None, "each token", "each row"])
@pytest.mark.parametrize("needs_grad", [True, False])
def test_is_its_layers_one_after_the_other(rows, skip, dropout, needs_grad):
    torch.manual_seed(0)
    options = replace(OPTIONS, use_skip_connections=skip, dropout=0.4 if dropout else 0.0)
    lstm = BiLstm(options).requires_grad_(needs_grad)
    lstm.variational_dropout = dropout == "each row"
    packings = {key: PackedBatch(lengths, 4) for key, lengths in zip(DIRECTIONS, ROWS[rows])}
    if rows == "the same":
        packings["backward"] = packings["forward"]
    inputs = {key: torch.randn(packing.n_tokens, 4) for key, packing in packings.items()}
    n_rows = packings["forward"].batch_size
    start = torch.randn(2, n_rows, 8) / 4, torch.randn(2, n_rows, 12) / 4
    carried = CarriedState(start)
    torch.manual_seed(1)
    outputs = lstm.run(inputs, packings, carried)
    # (n_layers, n_rows, n_directions * size)
    expected_states = [state.clone() for state in start]
    torch.manual_seed(1)
    for key, packing in packings.items():
        vectors = inputs[key]
        for index in range(2 if packing.n_tokens else 0):
            vectors = lstm.drop(vectors, packing)
            states = [state[index].chunk(2, 1)[key == "backward"] for state in expected_states]
            before = tuple(state[packing.order].unsqueeze(0) for state in states)
            (output,), last = run_layers([lstm.layer(key, index)], [vectors], packing, before)
            for state, (value,) in zip(states, last):
                state[packing.order] = value
            vectors = output + vectors if skip and index else output
            torch.testing.assert_close(outputs[key][index], vectors)
            assert outputs[key][index].requires_grad == needs_grad
        assert [output.shape for output in outputs[key]] == [inputs[key].shape] * 2
    torch.testing.assert_close(list(carried.states), expected_states)


def test_variational_dropout_draws_one_mask_for_all_words_of_a_row():
    lstm = BiLstm(replace(OPTIONS, dropout=0.4))
    lstm.variational_dropout = True
    packing = PackedBatch([30, 0, 20], 30)
    dropped = lstm.drop(torch.full((50, 4), 3.0), packing)
    masks = [dropped[packing.row == row].unique(dim=0) for row in (0, 2)]
    assert [len(mask) for mask in masks] == [1, 1] and not torch.equal(*masks)
    assert set(torch.cat(masks).unique().tolist()) == {0.0, 5.0}
    assert lstm.eval().drop(dropped, packing) is dropped


def run_lstm(lstm, n_threads):
    torch.set_num_threads(n_threads)
    packing = PackedBatch([9, 7, 7, 1, 4], 9)
    torch.manual_seed(1)
    inputs = {key: torch.randn(packing.n_tokens, lstm.input_size) for key in DIRECTIONS}
    carried = CarriedState()
    outputs = lstm.run(inputs, dict.fromkeys(DIRECTIONS, packing), carried)
    return [*outputs["forward"], *outputs["backward"], *carried.states]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_thread_for_each_direction_or_one_for_both_computes_the_same(
    precision, monkeypatch, request
):
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    in_parallel = Mock(side_effect=run_in_parallel)
    monkeypatch.setattr(bilstm, "run_in_parallel", in_parallel)
    monkeypatch.setattr(bilstm, "WORTH_THREADS", 0)
    torch.manual_seed(0)
    lstm = BiLstm(replace(OPTIONS, lstm_dim=256, projection_dim=64, dropout=0.5)).eval()
    for layer in (*lstm.forward_layers, *lstm.backward_layers):
        layer.precision = precision
    with torch.inference_mode():
        results = {n_threads: run_lstm(lstm, n_threads) for n_threads in (1, 2, 3, 4)}
    n_calls = [len(calls.args[0]) for calls in in_parallel.call_args_list]
    assert n_calls == [2, 2, 1]  # with 2, 3 and 4
    is_exact = has_onednn(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    for tensors in results.values():
        for tensor, expected in zip(tensors, results[1]):
            assert tensor.is_inference() == expected.is_inference()
            torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6 if is_exact else 0.01)
    # None if gradients or random numbers are needed
    run_lstm(lstm, 2)
    with torch.no_grad():
        run_lstm(lstm.train(), 2)
    assert in_parallel.call_count == 3
