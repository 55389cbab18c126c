import copy

import pytest
import torch
from allennlp.modules.lstm_cell_with_projection import LstmCellWithProjection

from allennlp_elmo_plugin.bilm import recurrence
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.packing import PackedBatch

LENGTHS, TIMESTEPS = [4, 7, 1, 7, 2], 7


def make_lstm(dtype=torch.double, **kwargs):
    torch.manual_seed(1)
    arguments = {"cell_clip": 0.5, "proj_clip": 0.3, **kwargs}
    lstm = ProjectedLstm(3, 6, arguments.pop("projection_dim", 4), **arguments).to(dtype)
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, 0, 0.7)
    return lstm


def make_state(lstm, dtype=torch.double):
    return tuple(torch.randn(5, n, dtype=dtype) / 4 for n in (lstm.projection_dim, lstm.dim))


def test_is_allennlps_cell():
    lstm = make_lstm(torch.float, forget_bias=0.0)
    original = LstmCellWithProjection(3, 4, 6, True, 0.0, 0.5, 0.3)
    original.load_state_dict(lstm.state_dict())
    lstm.load_state_dict(original.state_dict())
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    tokens = torch.randn(5, TIMESTEPS, 3)
    state = make_state(lstm, torch.float)
    with torch.no_grad():
        outputs, final = lstm(packing.pack(tokens), packing, state)
        expected, expected_final = original(
            tokens[packing.order],
            [LENGTHS[row] for row in packing.order.tolist()],
            tuple(part.unsqueeze(0) for part in state),
        )
    unpacked = packing.unpack([outputs])
    torch.testing.assert_close(unpacked[packing.order], expected, atol=1e-6, rtol=1e-6)
    # Some of both are at their clips, or the test is blind to these.
    assert (outputs.abs() == 0.3).any() and (final[1].abs() == 0.5).any()
    for part, expected_part in zip(final, expected_final):
        torch.testing.assert_close(part, expected_part[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"projection_dim": 6}, {"cell_clip": None}])
def test_gradient(kwargs):
    lstm = make_lstm(**kwargs)
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    state = make_state(lstm)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double, requires_grad=True)
    parameters = [inputs, *lstm.parameters()]
    assert torch.autograd.gradcheck(
        lambda *_: lstm(inputs, packing, state)[0], parameters, nondet_tol=0.0
    )


def test_recurrent_dropout_is_that_of_the_weights_of_the_state():
    lstm, packing = make_lstm(), PackedBatch(LENGTHS, TIMESTEPS)
    state = make_state(lstm)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double)
    weight = lstm.state_linearity.weight
    torch.manual_seed(2)
    outputs, _ = lstm(inputs, packing, state, recurrent_dropout=0.5)
    (gradient,) = torch.autograd.grad(outputs.sum(), weight)
    torch.manual_seed(2)
    mask = torch.nn.functional.dropout(torch.ones_like(weight), 0.5)
    plain = make_lstm()
    plain.load_state_dict({**lstm.state_dict(), "state_linearity.weight": weight * mask})
    expected, _ = plain(inputs, packing, state)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), plain.state_linearity.weight)
    assert torch.equal(outputs, expected)
    torch.testing.assert_close(gradient, expected_gradient * mask)
    # None in evaluation, and no random number is drawn without it.
    undropped, _ = lstm.eval()(inputs, packing, state, recurrent_dropout=0.5)
    random_state = torch.get_rng_state()
    assert torch.equal(undropped, lstm.train()(inputs, packing, state)[0])
    assert torch.equal(random_state, torch.get_rng_state())


def test_with_and_without_gradient_are_the_same(monkeypatch):
    lstm = make_lstm()
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double)
    state = make_state(lstm)
    expected, expected_state = lstm(inputs, packing, state)
    assert expected.requires_grad
    # Gates of one step at a time, of all, and of some.
    for workspace in (1, 2**20, 8 * 24 * 9):
        monkeypatch.setattr(recurrence, "_CHUNK_BYTES", workspace)
        kept = copy.deepcopy(state)
        with torch.no_grad():
            outputs, final = lstm(inputs, packing, state)
        torch.testing.assert_close(outputs, expected.detach())
        for part, expected_part in zip(final, expected_state):
            torch.testing.assert_close(part, expected_part)
        assert all(torch.equal(*parts) for parts in zip(kept, state))


def test_forget_bias_is_added_at_use():
    added, held = make_lstm(forget_bias=1.0), make_lstm(forget_bias=0.0)
    with torch.no_grad():
        held.state_linearity.bias[6:12] += 1.0
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double)
    state = make_state(added)
    torch.testing.assert_close(*(each(inputs, packing, state)[0] for each in (added, held)))


def test_weights_and_gradients_are_contiguous():
    """As `safetensors`, `parameters_to_vector` and L-BFGS want them."""
    lstm = make_lstm()
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double)
    lstm(inputs, packing, make_state(lstm))[0].sum().backward()
    for parameter in lstm.parameters():
        assert parameter.is_contiguous()
        assert parameter.grad.is_contiguous()


def test_a_retained_graph_gives_the_same_gradient_again():
    lstm = make_lstm()
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    inputs = torch.randn(packing.n_tokens, 3, dtype=torch.double)
    loss = lstm(inputs, packing, make_state(lstm))[0].sum()
    first, second = (
        torch.autograd.grad(loss, lstm.parameters(), retain_graph=True) for _ in range(2)
    )
    for grad, grad_again in zip(first, second):
        assert torch.equal(grad, grad_again)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("projection_dim", [4, 6])
def test_gradients_in_the_memory_of_the_gates_are_the_same(precision, projection_dim):
    """The last backward pass of a graph overwrites what it saved; others must not."""
    lstm = make_lstm(torch.float, projection_dim=projection_dim)
    lstm.precision = precision
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    inputs = torch.randn(packing.n_tokens, 3, requires_grad=True)
    parameters = [inputs, *lstm.parameters()]
    loss = lstm(inputs, packing, make_state(lstm, torch.float))[0].square().sum()
    kept = torch.autograd.grad(loss, parameters, retain_graph=True)
    for grad, grad_again in zip(kept, torch.autograd.grad(loss, parameters)):
        assert torch.equal(grad, grad_again)


def test_gradient_in_bfloat16_is_near():
    """With a state from before, and recurrent dropout."""
    torch.manual_seed(1)
    lstm = ProjectedLstm(24, 40, 16)
    packing = PackedBatch(LENGTHS, TIMESTEPS)
    state = tuple(2 * part for part in make_state(lstm, torch.float))
    inputs = torch.randn(packing.n_tokens, 24, requires_grad=True)
    results = []
    for lstm.precision in ("float32", "bfloat16"):
        torch.manual_seed(2)
        outputs, (_, memory) = lstm(inputs, packing, state, recurrent_dropout=0.5)
        grads = torch.autograd.grad(outputs.square().sum(), [inputs, *lstm.parameters()])
        # Each gate by itself.
        parts = [part for grad in grads[1:] for part in grad.chunk(4)]
        results.append([outputs.detach(), memory, *grads[0].split(packing.batch_sizes), *parts])
    for exact, near in zip(*results):
        assert 0 < (near - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("clip", ["cell_clip", "proj_clip"])
def test_what_is_clipped_in_bfloat16_has_no_gradient(clip):
    # In bfloat16, 0.7 is 0.69921875: a value at the clip is kept as one below it.
    lstm = make_lstm(torch.float, **{"cell_clip": None, "proj_clip": None, clip: 0.7})
    lstm.precision = "bfloat16"
    for parameter in lstm.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    packing = PackedBatch([1], 1)
    inputs = torch.ones(1, 3, requires_grad=True)
    outputs, (_, memory) = lstm(inputs, packing, (torch.zeros(1, 4), torch.zeros(1, 6)))
    outputs.sum().backward()
    clipped = memory if clip == "cell_clip" else outputs
    torch.testing.assert_close(clipped, torch.full_like(clipped, 0.7), atol=1e-3, rtol=0)
    grad = lstm.state_linearity.bias.grad
    # The gate of the output comes after the memory's clip.
    assert not grad[:18].any() and grad[18:].all() == (clip == "cell_clip")
