import pytest
import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions
from allennlp_elmo_plugin.bilm.kernels import gradients
from allennlp_elmo_plugin.bilm.softmax import Softmax

OPTIONS = BiLmOptions.from_dict(
    {
        "lstm": {"dim": 5, "projection_dim": 4},
        "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 4], [2, 4]], "n_highway": 1},
    }
)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_samples", [0, 2])
def test_a_second_derivative_is_refused(precision, num_samples):
    bilm, softmax = BiLm(OPTIONS), Softmax(9, 4, num_samples)
    bilm.set_precision(precision)
    for name, parameter in [*bilm.named_parameters(), *softmax.named_parameters()]:
        layers = bilm.run_words([["a", "b"]]).layers
        vectors = layers["backward" if "backward" in name else "forward"]
        loss = softmax.loss(vectors[1], torch.tensor([3, 8]))
        (grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            (loss + grad.to_dense().norm()).backward()


def test_elementwise_functions():
    values = torch.linspace(-4, 4, 33, dtype=torch.double, requires_grad=True)
    grad, out = torch.randn(33, dtype=torch.double), torch.empty(33, dtype=torch.double)
    for function, backward in (
        (torch.tanh, gradients.tanh_backward),
        (torch.sigmoid, gradients.sigmoid_backward),
        (lambda x: x.clamp(-3, 3), lambda g, x, out: gradients.clamp_backward_(g.clone(), x, 3.0)),
    ):
        output = function(values)
        (expected,) = torch.autograd.grad(output, values, grad)
        actual = backward(grad, output.detach(), out)
        inside = output.detach().abs() < 3  # at the clip, torch's own has a gradient
        torch.testing.assert_close(actual[inside], expected[inside])
        assert not actual[~inside].any()
    torch.testing.assert_close(gradients.tanh(values.detach(), out), values.detach().tanh())
