from dataclasses import replace

import torch
from allennlp.modules.lstm_cell_with_projection import LstmCellWithProjection

from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from tests.bilm.recurrence_test import (
    LENGTHS,
    OPTIONS,
    PACKING,
    TIMESTEPS,
    make_inputs,
    make_lstm,
    run,
)


def test_it_is_allennlps_cell():
    lstm = make_lstm(torch.float, forget_bias=0.0)
    original = LstmCellWithProjection(4, 4, 6, True, 0.0, 0.5, 0.3)
    original.load_state_dict(lstm.state_dict())
    tokens = torch.randn(5, TIMESTEPS, 4)
    _, state = make_inputs(lstm)
    with torch.no_grad():
        outputs, final = run(lstm, PACKING.pack(tokens), state)
        expected, expected_final = original(
            tokens[PACKING.order],
            [LENGTHS[row] for row in PACKING.order.tolist()],
            tuple(part.unsqueeze(0) for part in state),
        )
    unpacked = PACKING.unpack([outputs])
    torch.testing.assert_close(unpacked[PACKING.order], expected, atol=1e-6, rtol=1e-6)
    # Some of both are at their clips, or the test is blind to these.
    assert (outputs.abs() == 0.3).any() and (final[1].abs() == 0.5).any()
    for part, expected_part in zip(final, expected_final):
        torch.testing.assert_close(part, expected_part[0], atol=1e-6, rtol=1e-6)


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


def test_forget_bias_is_added_at_use():
    added, held = make_lstm(forget_bias=1.0), make_lstm(forget_bias=0.0)
    with torch.no_grad():
        held.state_linearity.bias[6:12] += 1.0
    inputs, state = make_inputs(added)
    torch.testing.assert_close(*(run(each, inputs, state)[0] for each in (added, held)))


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
