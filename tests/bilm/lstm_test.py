import copy
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import recurrence
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_layers
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from tests.support.processor import needs_bfloat16

LENGTHS = [4, 7, 1, 7, 2]
PACKING = PackedBatch(LENGTHS, 7)
LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 1, "cell_clip": 0.5, "proj_clip": 0.3}
OPTIONS = BiLmOptions.from_dict({"n_tokens_vocab": 9, "lstm": LSTM})


def make_lstm(dtype=torch.double, forget_bias=1.0, **options):
    torch.manual_seed(1)
    lstm = ProjectedLstm(replace(OPTIONS, **options), forget_bias).to(dtype)
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, 0, 0.7)
    return lstm


def make_inputs(lstm):
    """Vectors, and the outputs and cells of an earlier batch."""
    dtype = lstm.state_linearity.weight.dtype
    sizes = (PACKING.n_tokens, lstm.input_size), (5, lstm.hidden_size), (5, lstm.cell_size)
    inputs, *state = (torch.randn(*size, dtype=dtype) / 4 for size in sizes)
    return (4 * inputs).requires_grad_(), tuple(state)


def run(lstm, inputs, state, dropout=0.0, packing=PACKING):
    state = tuple(part.unsqueeze(0) for part in state)
    (outputs,), last = run_layers([lstm], [inputs], packing, state, dropout)
    return outputs, tuple(part[0] for part in last)


@pytest.mark.parametrize("lengths", [LENGTHS, [7]])
@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
@pytest.mark.parametrize("grad", [True, False])
# The inputs' part of the gates for one step at a time, for some, and for all
@pytest.mark.parametrize("chunk_bytes, n_chunks", [(1, 7), (8 * 24 * 9, 3), (2**20, 1)])
def test_it_is_allennlps_cell(lengths, forget_bias, grad, chunk_bytes, n_chunks, monkeypatch):
    allennlp = pytest.importorskip("allennlp.modules.lstm_cell_with_projection")
    chunks = Mock(wraps=recurrence.padded_rows)
    monkeypatch.setattr(recurrence, "padded_rows", chunks)
    monkeypatch.setattr(recurrence, "CHUNK_BYTES", chunk_bytes)
    lstm = make_lstm(forget_bias=forget_bias)
    original = allennlp.LstmCellWithProjection(4, 4, 6, True, 0.0, 0.5, 0.3).double()
    original.load_state_dict(lstm.state_dict())
    original.state_linearity.bias.data[6:12] += forget_bias  # which AllenNLP's weights include
    packing, tokens = PackedBatch(lengths, 7), torch.randn(len(lengths), 7, 4).double()
    state = tuple(part[: len(lengths)] for part in make_inputs(lstm)[1])
    kept = copy.deepcopy(state)
    with torch.set_grad_enabled(grad):
        outputs, final = run(lstm, packing.pack(tokens), state, packing=packing)
    assert all(map(torch.equal, kept, state)) and outputs.requires_grad == grad
    assert chunks.call_count == n_chunks or len(lengths) == 1
    # Some outputs and cells are clipped; otherwise the test wouldn't see a missing clip.
    assert (outputs.abs() == 0.3).any() and (final[1].abs() == 0.5).any()
    start = tuple(part.unsqueeze(0) for part in state)
    with torch.no_grad():
        rows = tokens[packing.order], sorted(lengths, reverse=True)
        expected, expected_final = original(*rows, start)
        actual = [packing.unpack([outputs])[packing.order], *final]
        torch.testing.assert_close(actual, [expected, *(part[0] for part in expected_final)])


def test_recurrent_dropout_is_dropout_of_the_states_weights():
    lstm = make_lstm()
    inputs, state = make_inputs(lstm)
    weight = lstm.state_linearity.weight
    torch.manual_seed(2)
    outputs, _ = run(lstm, inputs, state, 0.5)
    (gradient,) = torch.autograd.grad(outputs.sum(), weight)
    torch.manual_seed(2)
    mask = torch.nn.functional.dropout(torch.ones_like(weight), 0.5)
    plain = make_lstm()
    plain.load_state_dict({**lstm.state_dict(), "state_linearity.weight": weight * mask})
    expected, _ = run(plain, inputs, state)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), plain.state_linearity.weight)
    assert torch.equal(outputs, expected)
    torch.testing.assert_close(gradient, expected_gradient * mask)
    # Evaluation has none, and without it no random number is drawn.
    undropped, _ = run(lstm.eval(), inputs, state, 0.5)
    random_state = torch.get_rng_state()
    assert torch.equal(undropped, run(lstm.train(), inputs, state)[0])
    assert torch.equal(random_state, torch.get_rng_state())


def test_start_is_bilm_tfs():
    lstm = ProjectedLstm(replace(OPTIONS, lstm_dim=60, projection_dim=40))
    linears = lstm.input_linearity, lstm.state_linearity, lstm.state_projection
    for linear, in_and_out in zip(linears, (80 + 240, 80 + 240, 60 + 40)):
        limit = (6 / in_and_out) ** 0.5
        assert 0.98 * limit < linear.weight.abs().max() <= limit
    assert not lstm.state_linearity.bias.any()
    assert ProjectedLstm(replace(OPTIONS, lstm_dim=4)).state_projection is None


@pytest.mark.parametrize(
    "options", [{}, {"lstm_dim": 4}, {"lstm_dim": 4, "project_lstm": True}, {"cell_clip": None}]
)
def test_gradient(options):
    lstm = make_lstm(**options)
    inputs, state = make_inputs(lstm)
    assert torch.autograd.gradcheck(
        lambda *_: run(lstm, inputs, state)[0], [inputs, *lstm.parameters()], nondet_tol=0.0
    )


@needs_bfloat16
@pytest.mark.parametrize("cell_clip, proj_clip, tolerance", [(None, None, 0.02), (0.35, 0.15, 0.2)])
def test_gradient_in_bfloat16_is_near(cell_clip, proj_clip, tolerance):
    """Also from a given state and with recurrent dropout."""
    torch.manual_seed(1)
    sizes = {"lstm_dim": 40, "projection_dim": 16}
    lstm = ProjectedLstm(replace(OPTIONS, **sizes, cell_clip=cell_clip, proj_clip=proj_clip))
    inputs, state = make_inputs(lstm)
    state, parameters = tuple(2 * part for part in state), [inputs, *lstm.parameters()]
    results = []
    for lstm.precision in ("float32", "bfloat16"):
        torch.manual_seed(2)
        outputs, (_, cells) = run(lstm, inputs, state, 0.5)
        loss = outputs.square().sum()
        retained = torch.autograd.grad(loss, parameters, retain_graph=True)
        # The last backward pass of a graph overwrites what it saved.
        grads = torch.autograd.grad(loss, parameters)
        for grad, other in zip(grads, retained):
            # `safetensors`, `parameters_to_vector` and L-BFGS need contiguous gradients.
            assert grad.is_contiguous() and torch.equal(grad, other)
        # The gates one by one
        parts = [part for grad in grads[1:] for part in grad.chunk(4)]
        results.append([outputs.detach(), cells, *grads[0].split(PACKING.batch_sizes), *parts])
    for exact, near in zip(*results):
        assert 0 < (near - exact).norm() < tolerance * exact.norm()
