import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.model_call import model_call
from allennlp_elmo_plugin.bilm.kernels.prepared_values import Prepared, checksums


def change_data(linear):
    linear.weight.data.mul_(2.0)


def change_one_number(linear):
    linear.weight.data[-1, -1] += 1e-3


def exchange_rows(linear):
    linear.weight.data.copy_(linear.weight.data.flip(0))


def exchange_neighbours(linear):
    linear.weight.data[[0, 1]] = linear.weight.data[[1, 0]]


def exchange_numbers_in_a_row(linear):
    linear.weight.data[0, [0, 2]] = linear.weight.data[0, [2, 0]]


def roll_columns(linear):
    linear.weight.data.copy_(linear.weight.data.roll(2, 1))


def turn_signs_of_two_columns(linear):
    linear.weight.data[:, [1, -1]] *= -1


def turn_two_signs(linear):
    linear.weight.data[0, 1] *= -1
    linear.weight.data[2, -1] *= -1


def double_a_column(linear):
    linear.weight.data[:, 1] *= 2


def load(linear):
    linear.load_state_dict({key: 2 * value for key, value in linear.state_dict().items()})


def step(linear):
    linear.weight.grad = torch.ones_like(linear.weight)
    torch.optim.SGD(linear.parameters(), lr=0.1).step()


def replace(linear):
    linear.weight = torch.nn.Parameter(torch.randn(linear.weight.shape))


CHANGES = [
    change_data,
    change_one_number,
    exchange_rows,
    exchange_neighbours,
    exchange_numbers_in_a_row,
    roll_columns,
    turn_signs_of_two_columns,
    turn_two_signs,
    double_a_column,
    load,
    step,
    replace,
    torch.nn.Linear.double,
    torch.nn.Linear.bfloat16,
]


# Small enough for zlib's checksum, of any size, and of a size that is no multiple of 8 bytes.
@pytest.mark.parametrize("shape", [(3, 5), (300, 200), (301, 201)])
@pytest.mark.parametrize("change", CHANGES)
def test_is_made_again_when_a_parameter_changes(change, shape):
    torch.manual_seed(0)
    linear = torch.nn.Linear(*shape)
    prepared = Prepared()

    def get():
        return prepared.get(list(linear.parameters()), lambda: [linear.weight[-1, -1].item()])

    before = get()
    assert get() is before
    change(linear)
    after = get()
    assert after is not before
    assert after == [linear.weight[-1, -1].item()]
    assert get() is after


def test_every_number_counts():
    torch.manual_seed(0)
    for size in (1, 7, 2**12, 2**12 + 1, 2**13 + 5):
        parameter = torch.zeros(size)
        seen = {checksums([parameter])}
        for i in {0, size // 3, size - 1}:
            parameter.data[i] = 1.0
            seen.add(checksums([parameter]))
            parameter.data[i] = 0.0
        assert len(seen) == 1 + len({0, size // 3, size - 1})


def test_views_and_empty_parameters():
    values = torch.randn(3001)
    for each in (values[1:], values[::2], values[:0], values[1:3001].view(30, 100).t()):
        assert checksums([each]) == checksums([each.clone()])


def test_is_made_again_for_another_key():
    prepared = Prepared()
    parameter = torch.zeros(3)
    assert prepared.get([parameter], lambda: "a", 1) == "a"
    assert prepared.get([parameter], lambda: "b", 1) == "a"
    assert prepared.get([parameter], lambda: "b", 2) == "b"


def test_a_call_reads_a_parameter_once():
    prepared, parameter = Prepared(), torch.zeros(3)

    @model_call
    def change_within():
        before = prepared.get([parameter], lambda: object())
        parameter.data.add_(1.0)
        assert prepared.get([parameter], lambda: object()) is before
        return before

    before = change_within()
    assert prepared.get([parameter], lambda: object()) is not before


def test_a_copy_of_the_context_of_a_call_is_outside_of_it():
    """As an asyncio task has, when a hook starts one."""
    prepared, parameter = Prepared(), torch.zeros(3)
    copies = []

    @model_call
    def call():
        copies.append(copy_context())
        return prepared.get([parameter], lambda: object())

    @model_call
    def call_in_another_thread():
        context = copy_context()
        parameter.data.add_(1.0)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, prepared.get, [parameter], object).result()

    before = call()
    parameter.data.add_(1.0)
    assert copies[0].run(prepared.get, [parameter], object) is not before
    before = call()
    assert call_in_another_thread() is not before


def test_values_are_made_outside_inference_mode():
    prepared, parameter = Prepared(), torch.zeros(3, requires_grad=True)
    with torch.inference_mode():
        value = prepared.get([parameter], lambda: parameter * 2)
    assert not value.is_inference() and not value.requires_grad


def test_copies_are_empty():
    prepared = Prepared()
    parameter = torch.zeros(3)
    prepared.get([parameter], lambda: "a")
    for other in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert other.get([parameter], lambda: "b") == "b"
