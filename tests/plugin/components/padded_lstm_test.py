import pytest
import torch
from allennlp.common import Params
from allennlp.modules import Seq2SeqEncoder

SIZES = {"input_size": 5, "hidden_size": 4, "num_layers": 2}


@pytest.mark.parametrize("masked", [True, False])
def test_it_is_allennlps_lstm(masked):
    encoders = []
    for kind in ({"type": "padded_lstm"}, {"type": "lstm", "bidirectional": True}):
        torch.manual_seed(0)
        encoders.append(Seq2SeqEncoder.from_params(Params({**kind, **SIZES})))
    ours, theirs = encoders
    assert ours.get_input_dim() == 5
    assert ours.get_output_dim() == theirs.get_output_dim() and ours.is_bidirectional()
    torch.manual_seed(1)
    lengths = torch.tensor([3, 7, 1, 7]) if masked else torch.tensor([7] * 4)
    mask = torch.arange(7) < lengths.unsqueeze(1)
    inputs = torch.randn(4, 7, 5)
    weights = torch.randn(4, 7, 8)
    results = []
    for encoder in encoders:
        leaf = inputs.clone().requires_grad_()
        output = encoder(leaf, mask if masked or encoder is theirs else None)
        (output * weights).sum().backward()
        gradients = [parameter.grad for parameter in encoder.parameters()]
        results.append([output.detach(), leaf.grad, *gradients])
    assert all(tensor.any() for tensor in results[0])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_dropout_between_layers():
    encoder = Seq2SeqEncoder.from_params(Params({"type": "padded_lstm", **SIZES, "dropout": 0.9}))
    inputs = torch.randn(2, 3, 5)
    assert not torch.equal(encoder(inputs), encoder(inputs))
