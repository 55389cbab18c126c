import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from allennlp_elmo_plugin.bilm import bilstm
from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn
from allennlp_elmo_plugin.bilm.kernels.parallel import run_in_parallel
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

OPTIONS = BiLmOptions.from_dict(
    {
        "n_tokens_vocab": 10,
        "bidirectional": True,
        "unroll_steps": 4,
        "lstm": {"cell_clip": 3, "dim": 6, "n_layers": 2, "proj_clip": 3, "projection_dim": 4},
    },
)
DIRECTIONS = ["forward", "backward"]


@pytest.mark.parametrize("exhausted", DIRECTIONS)
@pytest.mark.parametrize("needs_grad", [True, False])
def test_a_direction_without_tokens_leaves_the_other_alone(exhausted, needs_grad):
    torch.manual_seed(0)
    lstm = BiLstm(OPTIONS).requires_grad_(needs_grad)
    other = DIRECTIONS[1 - DIRECTIONS.index(exhausted)]
    results = []
    for lengths in ([0, 0], [3, 2]):  # of the exhausted direction
        lstm.zero_grad()
        torch.manual_seed(1)
        packings = {other: PackedBatch([4, 1], 4), exhausted: PackedBatch(lengths, 4)}
        inputs = {key: torch.randn(packing.n_tokens, 4) for key, packing in packings.items()}
        carried = CarriedState()
        outputs = lstm(inputs, packings, carried)
        if needs_grad:
            outputs[other][-1].sum().backward()
        # (n_layers, n_rows, n_directions * size) to those of each direction
        parts = [dict(zip(DIRECTIONS, each.chunk(2, 2))) for each in carried.states]
        results.append(
            [
                *outputs[other],
                *(part[other] for part in parts),
                *(lstm.layer(other, 0).input_linearity.weight.grad if needs_grad else []),
            ]
        )
        assert [each.shape for each in outputs[exhausted]] == [(sum(lengths), 4)] * 2
        assert all(part[exhausted].any() == bool(sum(lengths)) for part in parts)
    for left, right in zip(*results):
        assert torch.equal(left, right)
    assert results[0][0].abs().sum() > 0


def test_variational_dropout_draws_one_mask_for_all_words_of_a_row():
    torch.manual_seed(0)
    lstm = BiLstm(replace(OPTIONS, dropout=0.4, use_skip_connections=True))
    lstm.variational_dropout = True
    lengths = {"forward": [2, 0, 4], "backward": [3, 1, 0]}
    packings = {key: PackedBatch(rows, 4) for key, rows in lengths.items()}
    inputs = {key: torch.randn(packing.n_tokens, 4) for key, packing in packings.items()}
    torch.manual_seed(1)
    outputs = lstm(inputs, packings, CarriedState())
    outputs = {
        key: [*layers, lstm.drop(layers[-1], packings[key])] for key, layers in outputs.items()
    }
    torch.manual_seed(1)
    # In the order of the layers of one direction, then of the other; the last outputs come last.
    masks = {(key, layer): torch.ones(3, 4) for key in DIRECTIONS for layer in (0, 1)}
    masks.update({(key, 2): torch.ones(3, 4) for key in DIRECTIONS})
    for mask in masks.values():
        mask.copy_(torch.nn.functional.dropout(mask, 0.4))
    for key in DIRECTIONS:
        for row in range(3):
            places = (packings[key].row == row).nonzero().flatten()
            vectors = inputs[key][places]
            for layer in range(2):
                vectors = vectors * masks[key, layer][row]
                cell = lstm.layer(key, layer)
                output, state, steps = torch.zeros(4), torch.zeros(6), []
                for vector in vectors:
                    gates = cell.input_linearity(vector) + cell.state_linearity(output)
                    i, f, g, o = gates.chunk(4)
                    state = (f + 1.0).sigmoid() * state + i.sigmoid() * g.tanh()
                    output = cell.state_projection(o.sigmoid() * state.tanh())
                    steps.append(output)
                steps = torch.stack(steps) if steps else vectors
                vectors = steps + vectors if layer else steps
                torch.testing.assert_close(outputs[key][layer][places], vectors)
            torch.testing.assert_close(outputs[key][2][places], vectors * masks[key, 2][row])
    # None in evaluation.
    lstm.eval()
    assert lstm.drop(inputs["forward"], packings["forward"]) is inputs["forward"]


LARGE = replace(OPTIONS, lstm_dim=64, projection_dim=16, use_skip_connections=True)


@pytest.fixture
def threads_for_all_sizes(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(bilstm, "_WORTH_THREADS", 0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sizes(monkeypatch):
    """How many computations ran in parallel in each call."""
    sizes = []

    def run(functions):
        sizes.append(len(functions))
        return run_in_parallel(functions)

    monkeypatch.setattr(bilstm, "run_in_parallel", run)
    return sizes


def run_lstm(lstm, n_threads, lengths=(9, 7, 7, 1, 4), carried=None):
    torch.set_num_threads(n_threads)
    packing = PackedBatch(lengths, max(lengths))
    generator = torch.Generator().manual_seed(1)
    sizes = packing.n_tokens, lstm.input_size
    inputs = {key: torch.randn(*sizes, generator=generator) for key in DIRECTIONS}
    carried = CarriedState() if carried is None else carried
    outputs = lstm(inputs, dict.fromkeys(DIRECTIONS, packing), carried)
    return [*(each for key in DIRECTIONS for each in outputs[key]), *carried.states]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dims", [(64, 16), (512, 64)])
def test_a_thread_for_each_direction_computes_the_same(
    precision, mode, dims, threads_for_all_sizes, sizes
):
    torch.manual_seed(0)
    lstm = BiLstm(replace(LARGE, lstm_dim=dims[0], projection_dim=dims[1]))
    for each in (*lstm.forward_layers, *lstm.backward_layers):
        each.precision = precision
    with mode():
        results = {n_threads: run_lstm(lstm, n_threads) for n_threads in (1, 2, 3, 4)}
    assert sizes == [2, 2]
    is_exact = has_onednn(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    for n_threads, tensors in results.items():
        for tensor, expected in zip(tensors, results[1]):
            assert tensor.is_inference() == expected.is_inference()
            assert not tensor.requires_grad
            torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6 if is_exact else 0.01)
            assert torch.equal(tensor, expected) or not is_exact or n_threads == 4


def test_where_directions_have_no_threads_of_their_own(threads_for_all_sizes, sizes, monkeypatch):
    lstm = BiLstm(replace(LARGE, dropout=0.5))
    run_lstm(lstm, 1)
    run_lstm(lstm, 4)
    with torch.no_grad():
        run_lstm(lstm, 2)  # random numbers
        lstm.eval()
        run_lstm(lstm, 1)
        run_lstm(lstm, 4)
        monkeypatch.setattr(bilstm, "_WORTH_THREADS", 5 * (64 * 4 * (16 + 16 + 1) + 64 * 16))
        run_lstm(lstm, 2, [3] * 4)
        assert sizes == []
        run_lstm(lstm, 2, [3] * 5)
        assert sizes == [2]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_error_of_one_direction_leaves_the_carried_state(direction, threads_for_all_sizes):
    lstm = BiLstm(LARGE).requires_grad_(False)
    carried = CarriedState()
    before = run_lstm(lstm, 2, carried=carried)
    layer = lstm.layer(direction, 1)
    weight = layer.state_linearity.weight
    layer.state_linearity.weight = torch.nn.Parameter(weight[:, :-1].clone(), requires_grad=False)
    with pytest.raises(RuntimeError):
        run_lstm(lstm, 2, carried=carried)
    assert all(map(torch.equal, carried.states, before[-2:]))


def test_callers_in_many_threads_get_the_numbers_of_one(threads_for_all_sizes, sizes):
    lstm = BiLstm(LARGE).requires_grad_(False)
    torch.set_num_threads(2)
    expected = run_lstm(lstm, 2)

    def call(_):
        torch.get_num_threads()
        all_have_theirs.wait(60)  # before a worker starts
        for _ in range(5):
            assert all(map(torch.equal, run_lstm(lstm, 2), expected))

    all_have_theirs = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, range(6), timeout=60))
    assert sizes == [2] * 31
