import pytest
import torch
from torch.nn.utils import prune

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


class Adapted(torch.nn.Linear):
    pass


def hook(register):
    return lambda module: getattr(module.linear, register)(lambda *_: None)


ALTERATIONS = {
    "forward hook": hook("register_forward_hook"),
    "forward pre-hook": hook("register_forward_pre_hook"),
    "backward hook": hook("register_full_backward_hook"),
    "another class": lambda module: setattr(module, "linear", Adapted(2, 3)),
    "pruned": lambda module: prune.l1_unstructured(module.linear, "weight", 0.5),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_altered_layers_are_refused(name):
    module = Layers()
    module(torch.zeros(1, 2))
    handle = ALTERATIONS[name](module)
    with pytest.raises(ValueError, match="the layer linear of Layers was replaced or has a hook"):
        module(torch.zeros(1, 2))
    if "hook" in name:
        handle.remove()
        module(torch.zeros(1, 2))


def test_autocast_ends_at_the_model():
    module = Layers()
    with torch.autocast("cpu", torch.bfloat16):
        assert module(torch.zeros(1, 2)).dtype == torch.float32
        assert module.linear(torch.zeros(1, 2)).dtype == torch.bfloat16


def test_a_gradient_is_needed_of_some_input_outside_no_grad():
    frozen, trained = torch.zeros(1), torch.zeros(1, requires_grad=True)
    assert needs_grad(frozen, trained) and not needs_grad(frozen) and not needs_grad()
    with torch.no_grad():
        assert not needs_grad(trained)


def test_lasting_tensors_are_made_in_no_mode():
    with torch.inference_mode(), lasting_tensors():
        made = torch.ones(1, requires_grad=True) * 2
    assert not made.is_inference() and not made.requires_grad
