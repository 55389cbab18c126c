import copy
from dataclasses import replace

import pytest
import torch

from allennlp_elmo_plugin.bilm import recurrence
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_layers
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

LENGTHS, TIMESTEPS = [4, 7, 1, 7, 2], 7
PACKING = PackedBatch(LENGTHS, TIMESTEPS)
LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 1, "cell_clip": 0.5, "proj_clip": 0.3}
OPTIONS = BiLmOptions.from_dict({"n_tokens_vocab": 9, "lstm": LSTM})


def make_lstm(dtype=torch.double, forget_bias=1.0, **options):
    torch.manual_seed(1)
    lstm = ProjectedLstm(replace(OPTIONS, **options), forget_bias).to(dtype)
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, 0, 0.7)
    return lstm


def make_inputs(lstm):
    """Vectors, outputs and cells from before."""
    dtype = lstm.state_linearity.weight.dtype
    sizes = (PACKING.n_tokens, lstm.input_size), (5, lstm.hidden_size), (5, lstm.cell_size)
    inputs, *state = (torch.randn(*size, dtype=dtype) / 4 for size in sizes)
    return (4 * inputs).requires_grad_(), tuple(state)


def run(lstm, inputs, state, dropout=0.0, packing=PACKING):
    return run_layers([lstm], [inputs], packing, [state], dropout)[0]


@pytest.mark.parametrize(
    "options", [{}, {"lstm_dim": 4}, {"lstm_dim": 4, "project_lstm": True}, {"cell_clip": None}]
)
def test_gradient(options):
    lstm = make_lstm(**options)
    inputs, state = make_inputs(lstm)
    assert torch.autograd.gradcheck(
        lambda *_: run(lstm, inputs, state)[0], [inputs, *lstm.parameters()], nondet_tol=0.0
    )


def test_with_and_without_gradient_are_the_same(monkeypatch):
    lstm = make_lstm()
    inputs, state = make_inputs(lstm)
    expected, expected_state = run(lstm, inputs, state)
    assert expected.requires_grad
    # Gates of one step at a time, of all, and of some.
    for workspace in (1, 2**20, 8 * 24 * 9):
        monkeypatch.setattr(recurrence, "_CHUNK_BYTES", workspace)
        kept = copy.deepcopy(state)
        with torch.no_grad():
            outputs, final = run(lstm, inputs, state)
        torch.testing.assert_close([outputs, *final], [expected.detach(), *expected_state])
        assert all(torch.equal(*parts) for parts in zip(kept, state))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("lstm_dim", [4, 6])
def test_a_retained_graph_gives_the_same_gradients(precision, lstm_dim):
    """The last backward pass of a graph overwrites what it saved; others must not."""
    lstm = make_lstm(torch.float, lstm_dim=lstm_dim)
    lstm.precision = precision
    inputs, state = make_inputs(lstm)
    parameters = [inputs, *lstm.parameters()]
    loss = run(lstm, inputs, state)[0].square().sum()
    first, second = (torch.autograd.grad(loss, parameters, retain_graph=True) for _ in range(2))
    last = torch.autograd.grad(loss, parameters)
    for grads in zip(first, second, last):
        # As `safetensors`, `parameters_to_vector` and L-BFGS want them
        assert all(grad.is_contiguous() and torch.equal(grad, grads[0]) for grad in grads)


def test_gradient_in_bfloat16_is_near():
    """With a state from before, and recurrent dropout."""
    torch.manual_seed(1)
    clips = {"cell_clip": None, "proj_clip": None}
    lstm = ProjectedLstm(replace(OPTIONS, lstm_dim=40, projection_dim=16, **clips))
    inputs, state = make_inputs(lstm)
    state = tuple(2 * part for part in state)
    results = []
    for lstm.precision in ("float32", "bfloat16"):
        torch.manual_seed(2)
        outputs, (_, cells) = run(lstm, inputs, state, 0.5)
        grads = torch.autograd.grad(outputs.square().sum(), [inputs, *lstm.parameters()])
        # Each gate by itself
        parts = [part for grad in grads[1:] for part in grad.chunk(4)]
        results.append([outputs.detach(), cells, *grads[0].split(PACKING.batch_sizes), *parts])
    for exact, near in zip(*results):
        assert 0 < (near - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("clip", ["cell_clip", "proj_clip"])
def test_what_is_clipped_in_bfloat16_has_no_gradient(clip):
    # In bfloat16, 0.7 is 0.69921875: a value at the clip is kept as one below it.
    lstm = make_lstm(torch.float, **{"cell_clip": None, "proj_clip": None, clip: 0.7})
    lstm.precision = "bfloat16"
    for parameter in lstm.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    zeros = torch.zeros(1, 4), torch.zeros(1, 6)
    outputs, (_, cells) = run(lstm, torch.ones(1, 4), zeros, packing=PackedBatch([1], 1))
    outputs.sum().backward()
    clipped = cells if clip == "cell_clip" else outputs
    torch.testing.assert_close(clipped, torch.full_like(clipped, 0.7), atol=1e-3, rtol=0)
    grad = lstm.state_linearity.bias.grad
    # The gate of the output comes after the cell's clip.
    assert not grad[:18].any() and grad[18:].all() == (clip == "cell_clip")
