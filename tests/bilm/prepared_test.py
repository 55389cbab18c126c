import copy
import pickle

import pytest
import torch

from allennlp_elmo_plugin.bilm.prepared import Prepared


def change_data(linear):
    linear.weight.data.mul_(2.0)


def load(linear):
    linear.load_state_dict({key: 2 * value for key, value in linear.state_dict().items()})


def step(linear):
    linear.weight.grad = torch.ones_like(linear.weight)
    torch.optim.SGD(linear.parameters(), lr=0.1).step()


def replace(linear):
    linear.weight = torch.nn.Parameter(torch.randn(200, 300))


@pytest.mark.parametrize("change", [change_data, load, step, replace, torch.nn.Linear.double])
def test_is_made_again_when_a_parameter_changes(change):
    linear = torch.nn.Linear(300, 200)
    prepared = Prepared()

    def get():
        return prepared.get(list(linear.parameters()), lambda: linear.weight.sum().item())

    before = get()
    assert get() is before
    change(linear)
    assert get() != before
    assert get() == linear.weight.sum().item()


def test_is_made_again_for_another_key():
    prepared = Prepared()
    parameter = torch.zeros(3)
    assert prepared.get([parameter], lambda: "a", 1) == "a"
    assert prepared.get([parameter], lambda: "b", 1) == "a"
    assert prepared.get([parameter], lambda: "b", 2) == "b"


def test_copies_are_empty():
    prepared = Prepared()
    parameter = torch.zeros(3)
    prepared.get([parameter], lambda: "a")
    for other in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert other.get([parameter], lambda: "b") == "b"
