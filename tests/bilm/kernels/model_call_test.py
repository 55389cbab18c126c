import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import (
    check_layers,
    lasting_tensors,
    model_call,
    needs_grad,
)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)
        self.projection = None

    @model_call
    def forward(self, inputs):
        check_layers(self, torch.nn.Linear)
        return self.linear(inputs)


ALTERATIONS = {
    "forward pre-hook": lambda module: module.linear.register_forward_pre_hook(print),
    "backward hook": lambda module: module.linear.register_full_backward_hook(print),
    "another class": lambda module: setattr(module, "linear", torch.nn.Bilinear(2, 2, 3)),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_altered_layers_are_refused(name):
    module = Layers()
    module(torch.zeros(1, 2))
    ALTERATIONS[name](module)
    with pytest.raises(ValueError, match="the layer linear of Layers was replaced or has a hook"):
        module(torch.zeros(1, 2))


def test_modes_end_at_the_model():
    module, vector = Layers(), torch.zeros(1, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(vector).dtype == torch.float32
        assert module.linear(vector).dtype == torch.bfloat16
    with torch.inference_mode(), lasting_tensors():
        made = vector * 2
    assert not made.is_inference() and not made.requires_grad
    assert needs_grad(made, vector) and not needs_grad(made) and not needs_grad()
    with torch.no_grad():
        assert not needs_grad(vector)
