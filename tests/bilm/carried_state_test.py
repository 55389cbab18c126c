import contextlib
import copy
import math
import pickle

import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState


def states_of(*values: float):
    """Of one layer, with rows of these values."""
    rows = torch.tensor(values).view(1, -1, 1)
    return rows.repeat(1, 1, 2), rows.repeat(1, 1, 4)


def rows_of(carried: CarriedState, n_rows: int):
    outputs, cells = carried.read(states_of(*[0.0] * n_rows))
    assert outputs.shape == (1, len(outputs[0]), 2) and cells.shape == (1, len(outputs[0]), 4)
    values = outputs[0, :, 0].tolist()
    for each in (outputs, cells):
        torch.testing.assert_close(
            each, torch.tensor(values).view(1, -1, 1).expand_as(each), equal_nan=True
        )
    return values


def test_rows_are_read_in_memory_of_their_own():
    carried = CarriedState()
    assert rows_of(carried, 2) == [0.0, 0.0]
    states = states_of(1.0, 2.0)
    carried.write(states)
    for n_rows, expected in ((1, [1.0, 2.0]), (2, [1.0, 2.0]), (3, [1.0, 2.0, 0.0])):
        assert rows_of(carried, n_rows) == expected
    for read, kept in zip(carried.read(states_of(0.0, 0.0)), states):
        read.fill_(5.0)
        assert kept.max() == 2.0
    doubles = tuple(each.double() for each in states_of(0.0))
    assert [each.dtype for each in carried.read(doubles)] == [torch.double] * 2


def test_a_fixed_state_is_the_first_row_of_another():
    fixed = FixedState(CarriedState(states_of(1.0, 2.0)))
    assert rows_of(fixed, 3) == [1.0] * 3
    fixed.write(states_of(7.0))
    assert rows_of(fixed, 1) == [1.0]
    assert rows_of(FixedState(), 2) == [0.0] * 2
    segments = fixed.for_segments(2)
    segments.write(states_of(3.0, 4.0))
    assert rows_of(segments, 2) == [3.0, 4.0] and rows_of(fixed, 2) == [1.0] * 2
    assert rows_of(FixedState().for_segments(2), 2) == [0.0] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf, 3.0])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_reset_rows_are_zero_whatever_was_in_them(value, dtype):
    carried = CarriedState(states_of(1.0, value, 2.0))
    carried.reset(torch.tensor([0, 1, 0], dtype=dtype))
    assert rows_of(carried, 3) == [1.0, 0.0, 2.0]
    # A batch of fewer or more rows
    carried = CarriedState(states_of(value, value, 2.0))
    carried.reset(torch.tensor([1], dtype=dtype))
    carried.reset(torch.tensor([0, 1, 0, 1], dtype=dtype))
    assert rows_of(carried, 3) == [0.0, 0.0, 2.0]
    carried.reset()
    carried.reset(torch.tensor([True]))
    assert rows_of(carried, 1) == [0.0]


@pytest.mark.parametrize("written, reset", [(True, True), (True, False), (False, True)])
def test_states_of_inference_mode_can_be_used_outside_of_it(written, reset):
    def mode(is_inference):
        return torch.inference_mode() if is_inference else contextlib.nullcontext()

    with mode(written):
        carried = CarriedState(CarriedState(states_of(1.0, math.nan, 2.0)).read(states_of(0.0)))
    with mode(reset):
        carried.reset(torch.tensor([False, True, False]))
    for rows in carried.read(states_of(0.0)):
        assert not rows.is_inference()
        weight = torch.ones_like(rows, requires_grad=True)
        (weight * rows).sum().backward()
        assert weight.grad.mean(2).tolist() == [[1.0, 0.0, 2.0]]
        rows.add_(1.0)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_copies_and_state_dicts_keep_the_states(duplicate):
    original = CarriedState(states_of(1.0))
    copied, other = duplicate(original), CarriedState()
    other.load_state_dict(original.state_dict())
    original.reset()
    assert rows_of(copied, 1) == rows_of(other, 1) == [1.0]
    assert other.row(0).tolist() == [1.0] * 6 and original.state_dict() is None


def test_states_of_an_earlier_version():
    outputs, cells = torch.randn(3, 2, 8), torch.randn(3, 2, 10)
    earlier = {
        (direction, layer): (
            outputs[layer, :, i * 4 : i * 4 + 4],
            cells[layer, :, i * 5 : i * 5 + 5],
        )
        for layer in range(3)
        for i, direction in enumerate(("forward", "backward"))
    }
    carried = CarriedState()
    carried.load_state_dict(earlier)
    assert all(torch.equal(one, other) for one, other in zip(carried.states, (outputs, cells)))
    carried.load_state_dict({})
    assert carried.states is None
