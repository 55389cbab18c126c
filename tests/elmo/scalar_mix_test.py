"""`ScalarMix` against AllenNLP's: numbers, gradients and `state_dict`."""

import pytest
import torch

from allennlp_elmo_plugin.elmo.scalar_mix import ScalarMix

MASK = torch.arange(5) < torch.tensor([[3], [0], [5]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("do_layer_norm", [False, True])
@pytest.mark.parametrize("initial, trainable", [(None, True), ([0.5, -9e3, 2.0], False)])
def test_equals_the_original(dtype, do_layer_norm, initial, trainable):
    scalar_mix = pytest.importorskip("allennlp.modules.scalar_mix")
    results = []
    for kind in (ScalarMix, scalar_mix.ScalarMix):
        torch.manual_seed(0)
        mix = kind(3, do_layer_norm, initial, trainable).to(dtype)
        layers = [torch.randn(3, 5, 4).to(dtype).requires_grad_() for _ in range(3)]
        for parameter in filter(lambda parameter: parameter.requires_grad, mix.parameters()):
            torch.nn.init.normal_(parameter)
        # Without a token the layer norm gives NaN.
        outputs = [mix(layers, mask) for mask in (MASK, MASK & False)]
        outputs[0].square().sum().backward()
        gradients = [tensor.grad for tensor in (*layers, *mix.parameters())]
        results.append((outputs, gradients, mix.state_dict(), mix.mixture_size))
    torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


def test_mistakes():
    with pytest.raises(ValueError, match="has 1 weights, but the model has 2 layers"):
        ScalarMix(2, False, [1.0])
    with pytest.raises(ValueError, match="got 1 layers to mix, but there are 2"):
        ScalarMix(2)([torch.zeros(1, 1, 1)])
