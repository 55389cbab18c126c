import pytest
import torch

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.kernels import gradients
from allennlp_elmo_plugin.bilm.kernels.matrix_product import Linear
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.softmax import Softmax

VECTORS = torch.randn(3, 4)


def _lstm(precision: str):
    sizes = {"dim": 5, "projection_dim": 4, "n_layers": 1}
    options = {"n_tokens_vocab": 9, "bidirectional": False, "lstm": sizes}
    lstm = BiLstm(BiLmOptions.from_dict(options))
    lstm.forward_layers[0].precision = precision
    inputs, packing = {"forward": VECTORS}, {"forward": PackedBatch([1, 1, 1], 1)}
    return lstm, lambda: lstm(inputs, packing)["forward"][0]


def _linear():
    linear = torch.nn.Linear(4, 5)
    return linear, lambda: Linear.apply(VECTORS, linear.weight, linear.bias, torch.float)


def _softmax(num_samples: int):
    softmax = Softmax(9, 4, num_samples)
    return softmax, lambda: softmax.loss(VECTORS, torch.tensor([3, 0, 8]))


def _encoder():
    encoder = CharacterEncoder(CharCnnOptions(((1, 4),), "relu", 3), 4).requires_grad_(False)
    encoder.convolutions[0].weight.requires_grad_()
    return encoder, lambda: encoder(torch.ones(3, 50, dtype=torch.long))


MODULES = {
    "lstm": lambda: _lstm("float32"),
    "lstm in bfloat16": lambda: _lstm("bfloat16"),
    "linear": _linear,
    "full softmax": lambda: _softmax(0),
    "sampled softmax": lambda: _softmax(2),
    "encoder": _encoder,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_second_derivative_is_refused(name):
    """Also where the gradient of the output is a constant, here 1."""
    module, compute = MODULES[name]()
    parameter = next(each for each in module.parameters() if each.requires_grad)
    loss = compute().sum()
    (grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (loss + grad.to_dense().norm()).backward()
    compute().sum().backward()
    assert not parameter.grad.requires_grad


def test_elementwise_functions():
    values = torch.linspace(-4, 4, 33, dtype=torch.double, requires_grad=True)
    grad = torch.randn(33, dtype=torch.double)
    for function, backward in (
        (torch.tanh, gradients.tanh_backward),
        (torch.sigmoid, gradients.sigmoid_backward),
        (lambda x: x.clamp(-3, 3), lambda g, x, out: gradients.clamp_backward_(g.clone(), x, 3.0)),
    ):
        output = function(values)
        (expected,) = torch.autograd.grad(output, values, grad)
        actual = backward(grad, output.detach(), torch.empty(33, dtype=torch.double))
        inside = output.detach().abs() < 3  # at the clip, torch's own has a gradient
        torch.testing.assert_close(actual[inside], expected[inside])
        assert not actual[~inside].any()
    out = torch.empty(33, dtype=torch.double)
    torch.testing.assert_close(gradients.tanh(values.detach(), out), values.detach().tanh())
