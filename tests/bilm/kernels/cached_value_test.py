import copy
import pickle

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.cached_value import CachedValue, CachingModule


def scale(linear):
    linear.weight.data.mul_(2.0)


def set_data(linear):
    linear.weight.data = linear.weight.data * 2


def roll(linear):
    linear.weight.data.copy_(linear.weight.data.roll(1, 0))


def change_the_last_number(linear):
    linear.weight.data[-1, -1] += 1e-3


def edit_in_place(linear):
    with torch.no_grad():
        linear.weight[1, 1] += 1e-3


def load(linear):
    linear.load_state_dict({key: 2 * value for key, value in linear.state_dict().items()})


def step(linear):
    linear.weight.grad = torch.ones_like(linear.weight)
    torch.optim.SGD(linear.parameters(), lr=0.1).step()


def replace(linear):
    linear.weight = torch.nn.Parameter(linear.weight.detach().clone())


CHANGES = [
    scale,
    set_data,
    roll,
    change_the_last_number,
    edit_in_place,
    load,
    step,
    replace,
    torch.nn.Linear.double,
    torch.nn.Linear.bfloat16,
]


@pytest.mark.parametrize("shape", [(3, 5), (301, 201)])
@pytest.mark.parametrize("change", CHANGES)
def test_is_made_again_when_a_parameter_changes(change, shape):
    torch.manual_seed(0)
    linear = torch.nn.Linear(*shape)
    value = CachedValue()

    def get():
        return value.get(list(linear.parameters()), object)

    before = get()
    assert get() is before
    change(linear)
    after = get()
    assert after is not before and get() is after


def test_an_address_is_not_used_again():
    """Else a new parameter could be taken for the old one."""
    value = CachedValue()
    for _ in range(20):
        assert value.get([torch.ones(1000)], object) is not value.get([torch.ones(1000)], object)


def test_is_made_again_for_another_key():
    value, parameter = CachedValue(), torch.zeros(3)
    assert value.get([parameter], lambda: "a", 1) == "a"
    assert value.get([parameter], lambda: "b", 1) == "a"
    assert value.get([parameter], lambda: "b", 2) == "b"


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_train_and_eval_drop_it(mode):
    module, parameter = torch.nn.Sequential(CachingModule()), torch.zeros(3)
    value = module[0].value = CachedValue()
    before = value.get([parameter], object)
    getattr(module, mode)()
    assert value.get([parameter], object) is not before


def test_is_made_outside_inference_mode():
    value, parameter = CachedValue(), torch.zeros(3, requires_grad=True)
    with torch.inference_mode():
        made = value.get([parameter], lambda: parameter * 2)
        assert value.get([parameter], lambda: None) is made
    assert not made.is_inference() and not made.requires_grad


def test_parameters_of_inference_mode():
    with torch.inference_mode():
        parameter = torch.zeros(3)
        value = CachedValue()
        made = value.get([parameter], object)
        assert value.get([parameter], object) is made
        parameter.add_(1)
        assert value.get([parameter], object) is not made


def test_copies_are_empty():
    value, parameter = CachedValue(), torch.zeros(3)
    value.get([parameter], lambda: "a")
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other.get([parameter], lambda: "b") == "b"


def test_replicas_of_data_parallel_make_their_own():
    module, parameter = CachingModule(), torch.zeros(3)
    module.value = CachedValue()
    before = module.value.get([parameter], object)
    replica = module._replicate_for_data_parallel()
    assert replica.value.get([parameter + 1], object) is not before
    assert module.value.get([parameter], object) is before
