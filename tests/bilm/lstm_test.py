from dataclasses import replace

import pytest
import torch
from allennlp.modules.lstm_cell_with_projection import LstmCellWithProjection

from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from tests.bilm.recurrence_test import LENGTHS, OPTIONS, make_inputs, make_lstm, run


@pytest.mark.parametrize("lengths", [LENGTHS, [7]])
@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_it_is_allennlps_cell(lengths, forget_bias):
    lstm = make_lstm(torch.float, forget_bias=forget_bias)
    original = LstmCellWithProjection(4, 4, 6, True, 0.0, 0.5, 0.3)
    original.load_state_dict(lstm.state_dict())
    original.state_linearity.bias.data[6:12] += forget_bias  # which AllenNLP's weights include
    packing, tokens = PackedBatch(lengths, 7), torch.randn(len(lengths), 7, 4)
    state = tuple(part[: len(lengths)] for part in make_inputs(lstm)[1])
    with torch.no_grad():
        outputs, final = run(lstm, packing.pack(tokens), state, packing=packing)
        expected, expected_final = original(
            tokens[packing.order],
            sorted(lengths, reverse=True),
            tuple(part.unsqueeze(0) for part in state),
        )
    # Some of both are at their clips, or the test is blind to these.
    assert (outputs.abs() == 0.3).any() and (final[1].abs() == 0.5).any()
    actual = [packing.unpack([outputs])[packing.order], *final]
    expected = [expected, *(part[0] for part in expected_final)]
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)


def test_recurrent_dropout_is_that_of_the_weights_of_the_state():
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
    # None in evaluation, and no random number is drawn without it.
    undropped, _ = run(lstm.eval(), inputs, state, 0.5)
    random_state = torch.get_rng_state()
    assert torch.equal(undropped, run(lstm.train(), inputs, state)[0])
    assert torch.equal(random_state, torch.get_rng_state())


def test_start_is_bilm_tfs():
    lstm = ProjectedLstm(replace(OPTIONS, lstm_dim=60, projection_dim=40))
    for linear, in_dim, out_dim in (
        (lstm.input_linearity, 80, 240),
        (lstm.state_linearity, 80, 240),
        (lstm.state_projection, 60, 40),
    ):
        limit = (6 / (in_dim + out_dim)) ** 0.5
        assert 0.98 * limit < linear.weight.abs().max() <= limit
    assert not lstm.state_linearity.bias.any()
    assert ProjectedLstm(replace(OPTIONS, lstm_dim=4)).state_projection is None
