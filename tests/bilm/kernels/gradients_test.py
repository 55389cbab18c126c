import pytest
import torch

from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.kernels.linear import Linear
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.options import CharCnnOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.softmax import Softmax

VECTORS = torch.randn(3, 4)


def _lstm(precision: str):
    lstm = ProjectedLstm(4, 5, 4)
    lstm.precision = precision
    state = torch.zeros(3, 4), torch.zeros(3, 5)
    return lstm, lambda: lstm(VECTORS, PackedBatch([1, 1, 1], 1), state)[0]


def _linear():
    linear = Linear(4, 5)
    return linear, lambda: linear(VECTORS)


def _softmax(num_samples: int):
    softmax = Softmax(9, 4, num_samples)
    return softmax, lambda: softmax.loss(VECTORS, torch.tensor([3, 0, 8]))


def _encoder():
    encoder = CharacterEncoder(CharCnnOptions(((1, 4),), "relu", 3), 4)
    encoder.requires_grad_(False)
    encoder.convolutions[0].weight.requires_grad_()
    return encoder, lambda: encoder(torch.ones(3, 50, dtype=torch.long))


@pytest.mark.parametrize(
    "make",
    [
        lambda: _lstm("float32"),
        lambda: _lstm("bfloat16"),
        _linear,
        lambda: _softmax(0),
        lambda: _softmax(2),
        _encoder,
    ],
    ids=["lstm", "lstm in bfloat16", "linear", "full softmax", "sampled softmax", "encoder"],
)
def test_a_second_derivative_is_refused(make):
    """Also where the gradient of the output is a constant, here 1."""
    module, compute = make()
    parameter = next(each for each in module.parameters() if each.requires_grad)
    loss = compute().sum()
    (grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (loss + grad.to_dense().norm()).backward()
    compute().sum().backward()
    assert not parameter.grad.requires_grad
