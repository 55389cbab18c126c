"""
The kernels in Triton, on a GPU or in Triton's interpreter (`TRITON_INTERPRET=1`), against the loop
and the convolutions in float64 on the CPU, for which there is no kernel.
"""

import copy
import os

import pytest
import torch

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_layers
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if IS_INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (IS_INTERPRETED or torch.cuda.is_available()), reason="needs a GPU"),
]
SHORT = [4, 7, 0, 1, 7, 2]
SHRINKING = [5, 4] + [3] * 15 + [2] * 50 + [1] * 66  # from blocks of 128 rows to those of 16
CHARACTERS = CharCnnOptions(((1, 3), (2, 4), (3, 5), (7, 6)), "relu", 4, 1)


def make_layers(number, precision="float32", **options):
    torch.manual_seed(1)
    options = {"lstm_dim": 37, "projection_dim": 13, "n_layers": 1, **options}
    options = BiLmOptions(cell_clip=0.5, proj_clip=0.3, char_cnn=CHARACTERS, **options)
    layers = [ProjectedLstm(options) for _ in range(number)]
    for layer in layers:
        layer.precision = precision
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, 0, 1.5 / parameter.size(-1) ** 0.5)
    return layers


def run(layers, packing, inputs, states, grads, frozen=()):
    """Return outputs, last states and, with `grads`, gradients of inputs and parameters."""
    if grads is None:
        with torch.no_grad():
            outputs, last = run_layers(layers, inputs, packing, states)
        return [tensor for of_layer in zip(outputs, *last) for tensor in of_layer]
    parameters = [p for layer in layers for n, p in layer.named_parameters() if n not in frozen]
    wanted = [*(rows.requires_grad_() for rows in inputs), *parameters]
    for layer in layers:
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name not in frozen)
    outputs, last = run_layers(layers, inputs, packing, states)
    loss = sum((rows * grad).sum() for rows, grad in zip(outputs, grads))
    retained = torch.autograd.grad(loss, wanted, retain_graph=True)
    found = torch.autograd.grad(loss, wanted)
    torch.testing.assert_close(retained, found, rtol=0, atol=0, equal_nan=True)
    assert all(grad.is_contiguous() for grad in found)
    return [*(t.detach() for of_layer in zip(outputs, *last) for t in of_layer), *found]


def both(layers, lengths, needs_grad, change=None, frozen=()):
    """Return results by the kernels, and by the loop in float64."""
    packing = PackedBatch(lengths, max(lengths))
    (n, out), dim = (packing.n_tokens, layers[0].hidden_size), layers[0].cell_size
    inputs = [torch.randn(n, out) for _ in layers]
    states = [torch.randn(len(layers), len(packing.order), d) / 2 for d in (out, dim)]
    grads = [torch.randn(n, out) for _ in layers] if needs_grad else None
    if change is not None:
        change(inputs)

    def results(device, dtype):
        def there(tensors):
            return [tensor.detach().to(device, dtype) for tensor in tensors]

        copies = [copy.deepcopy(layer).to(device, dtype) for layer in layers]
        rows = there(inputs)
        assert copies[0].kernel.TRAINS_TOGETHER == (dtype == torch.float32)
        packed = PackedBatch(lengths, max(lengths), rows[0].device)
        found = run(copies, packed, rows, there(states), grads and there(grads), frozen)
        return [tensor.cpu().double() for tensor in found]

    return results(DEVICE, torch.float32), results("cpu", torch.float64)


def assert_near(results, tolerance=2e-6):
    for actual, expected in zip(*results, strict=True):
        assert (actual - expected).abs().max() <= tolerance * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("lengths", [[3], SHORT, [2] * 20, SHRINKING])
def test_recurrence(lengths, number, needs_grad):
    results = both(make_layers(number), lengths, needs_grad)
    outputs, cells = results[1][0], results[1][2]
    # Otherwise the test wouldn't see a missing clip.
    assert (outputs.abs() == 0.3).any() and (cells.abs() == 0.5).any()
    assert_near(results)


@pytest.mark.parametrize("sizes", [{"lstm_dim": 64, "projection_dim": 32}, {"lstm_dim": 70}])
def test_blocks_of_cells_and_no_clips(sizes):
    layers = make_layers(2, **sizes)
    for layer in layers:
        layer.memory_cell_clip_value = layer.state_projection_clip_value = None
    for needs_grad in (True, False):
        assert_near(both(layers, SHORT, needs_grad), 1e-5)


@pytest.mark.parametrize("n_rows", [300, 1400])
def test_many_short_sentences(n_rows):
    """Each step deals out the blocks anew, while the cells are updated in place."""
    lengths = [1 + (i % 7 == 0) + 2 * (i % 11 == 0) + (i % 50 == 0) for i in range(n_rows)]
    layers = make_layers(2, lstm_dim=20, projection_dim=8)
    torch.manual_seed(2)
    results = both(layers, lengths, False)
    assert_near(results)
    torch.manual_seed(2)
    assert all(map(torch.equal, results[0], both(layers, lengths, False)[0]))


@pytest.mark.parametrize("needs_grad", [True, False])
def test_gates_in_pieces(needs_grad, monkeypatch):
    from allennlp_elmo_plugin.bilm.kernels import triton_recurrence

    monkeypatch.setattr(triton_recurrence, "MAX_GATES_BYTES", 2 * 4 * 37 * 4 * 9)  # nine tokens
    assert_near(both(make_layers(2), [6, 5, 5, 2, 1], needs_grad))


def test_frozen_weights_and_dropout():
    frozen = "input_linearity.weight", "state_linearity.weight"
    assert_near(both(make_layers(2), SHORT, True, frozen=frozen))
    layers = [layer.to(DEVICE) for layer in make_layers(1)]
    packing = PackedBatch([3, 3], 3, torch.device(DEVICE))
    rows, state = torch.ones(6, 13), (torch.zeros(1, 2, 13), torch.zeros(1, 2, 37))
    rows, state = rows.to(DEVICE), tuple(part.to(DEVICE) for part in state)
    dropped, kept = (run_layers(layers, [rows], packing, state, rate)[0][0] for rate in (0.5, 0))
    first, rest = dropped.split([2, 4])
    torch.testing.assert_close(first, kept[:2])  # from a state of zero
    assert not torch.allclose(rest, kept[2:])


@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("number", [1, 2])
def test_bfloat16_is_near(number, needs_grad):
    layers = make_layers(number, "bfloat16", lstm_dim=70, projection_dim=40)
    for actual, expected in zip(*both(layers, SHORT, needs_grad), strict=True):
        assert 0 < (actual - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize("needs_grad", [True, False])
def test_nan_stays_in_its_row(needs_grad):
    def change(inputs):
        inputs[0][2] = torch.nan  # the first token of the third row

    found, expected = both(make_layers(2), SHORT, needs_grad, change)
    for actual, other in list(zip(found, expected))[:8]:  # without the weights' gradients
        assert torch.equal(actual.isnan(), other.isnan())
        torch.testing.assert_close(actual, other, equal_nan=True, rtol=1e-5, atol=1e-5)
    assert found[0].isnan().any() and not found[3].isnan().any()


def spell(lengths):
    """Random words of these lengths; padding is 261, and 0 in the last word."""
    rows = torch.full((len(lengths), 50), 261)
    for row, length in zip(rows, lengths):
        row[:length] = torch.randint(97, 103, (length,))
    rows[1, 1], rows[-1] = 261, 0
    return rows


def encode(encoder, ids, grad):
    vectors = encoder(ids)
    gradients = torch.autograd.grad(vectors, list(encoder.parameters()), grad)
    return [tensor.detach().cpu().double() for tensor in (vectors, *gradients)]


@pytest.mark.parametrize(
    "filters, lengths",
    [
        (CHARACTERS.filters, [50, 3, 1, 2, 7, 43, 1]),
        (((50, 3),), [3, 50, 49, 1]),
        (((2, 300), (1, 7)), [1, 3, 2, 5, 1]),
    ],
)
@pytest.mark.parametrize("activation, is_ordered", [("relu", False), ("tanh", True)])
def test_characters(activation, is_ordered, filters, lengths):
    torch.manual_seed(3)
    encoder = CharacterEncoder(CharCnnOptions(filters, activation, 4, 1), 5)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    ids, grad = spell(lengths), torch.randn(len(lengths), 5)
    expected = encode(copy.deepcopy(encoder).double(), ids, grad.double())
    torch.use_deterministic_algorithms(is_ordered)
    try:
        found = encode(encoder.to(DEVICE), ids.to(DEVICE), grad.to(DEVICE))
    finally:
        torch.use_deterministic_algorithms(False)
    assert_near((found, expected))


def test_characters_that_are_wrong_or_nan():
    torch.manual_seed(3)
    encoder = CharacterEncoder(CHARACTERS, 5).to(DEVICE)
    ids = spell([4, 3, 2, 5, 3, 4, 1]).to(DEVICE)
    ids[0, 2], ids[2, 1] = 262, -1
    with torch.no_grad():
        encoder._char_embedding_weights[97] = torch.nan
        vectors = encoder.encode(ids)
    has_nan = (ids == 97).any(1) | (ids > 261).any(1) | (ids < 0).any(1)
    assert torch.equal(vectors.isnan().all(1), has_nan) and 2 < has_nan.sum() < 7


@pytest.mark.parametrize(
    "n_steps, is_bidirectional, lengths",
    [(3, True, [4, 2, 3, 1]), (1, True, [3, 2, 0, 4]), (1, False, None)],
)
def test_language_model(n_steps, is_bidirectional, lengths):
    """
    A call and steps of training on two texts, the second with these lengths; each leaves its states
    for the next.
    """
    torch.manual_seed(4)
    characters = CharCnnOptions(((1, 3), (2, 4)), "relu", 4, 1, 6)
    options = BiLmOptions(24, 10, 2, 0.5, 0.3, True, characters, bidirectional=is_bidirectional)
    model = BiLm(options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.4)
    ids = [torch.randint(1, 5, (4, 4, 6)) for _ in range(2)]
    ids = [each.where(torch.rand(4, 4, 1) * 4 > torch.arange(6), 261) for each in ids]

    def results(device, dtype):
        copied = copy.deepcopy(model).to(device, dtype)
        copied.lstm.stateful = True
        texts = [each.to(device) for each in ids]
        found = []
        parameters = list(copied.parameters())
        for needs_grad in [False, *[True] * n_steps]:
            with torch.set_grad_enabled(needs_grad):
                output = copied(texts[0], [4, 2, 3, 1], texts[1], lengths)
                layers = [rows for of_direction in output.layers.values() for rows in of_direction]
                found += layers
                if needs_grad:
                    loss = sum(rows.square().sum() for rows in layers)
                    found += torch.autograd.grad(loss, parameters)
                    with torch.no_grad():
                        for parameter, grad in zip(parameters, found[-len(parameters) :]):
                            parameter -= 0.01 * grad
        return [each.detach().cpu().double() for each in (*found, *copied.lstm._states)]

    assert_near((results(DEVICE, torch.float32), results("cpu", torch.float64)), 5e-6)
