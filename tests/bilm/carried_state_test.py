import copy
import math
import pickle

import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState


def states_of(*values):
    """States of one layer whose rows have these values."""
    rows = torch.tensor(values).view(1, -1, 1)
    return rows.repeat(1, 1, 2), rows.repeat(1, 1, 4)


def rows_of(carried, n_rows):
    """The values that a batch of `n_rows` rows reads."""
    outputs, cells = carried.read(states_of(*[0.0] * n_rows))
    values = outputs[0, :, 0].tolist()
    torch.testing.assert_close((outputs, cells), states_of(*values))
    return values


def test_new_rows_start_from_zero_and_others_from_where_they_were():
    carried = CarriedState()
    assert rows_of(carried, 2) == [0.0, 0.0]
    carried.write(states_of(1.0, 2.0))
    for n_rows, expected in ((1, [1.0, 2.0]), (2, [1.0, 2.0]), (3, [1.0, 2.0, 0.0])):
        assert rows_of(carried, n_rows) == expected
    carried.read(states_of(0.0))[0].fill_(5.0)
    assert rows_of(carried, 1) == [1.0, 2.0]
    doubles = carried.read(tuple(zeros.double() for zeros in states_of(0.0)))
    assert [state.dtype for state in doubles] == [torch.double] * 2


def test_a_fixed_state_is_the_first_row_of_another():
    fixed = FixedState(CarriedState(states_of(1.0, 2.0)))
    fixed.write(states_of(7.0))
    segments = fixed.for_segments(2)
    segments.write(states_of(3.0, 4.0))
    assert rows_of(segments, 2) == [3.0, 4.0] and rows_of(fixed, 3) == [1.0] * 3
    assert rows_of(FixedState(), 2) == rows_of(FixedState().for_segments(2), 2) == [0.0] * 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_reset_rows_are_zero_whatever_was_in_them(value, dtype):
    carried = CarriedState(states_of(value, value, 2.0, value, 5.0))
    # Batches of fewer and of more rows
    for mask in ([1], [0, 1, 0, 1, 0, 1]):
        carried.reset(torch.tensor(mask, dtype=dtype))
    assert rows_of(carried, 5) == [0.0, 0.0, 2.0, 0.0, 5.0]
    carried.reset()
    carried.reset(torch.tensor([True]))
    assert rows_of(carried, 1) == [0.0]


@pytest.mark.parametrize("written, reset", [(True, True), (True, False), (False, True)])
def test_states_of_inference_mode_can_be_used_outside_of_it(written, reset):
    with torch.inference_mode(written):
        carried = CarriedState(CarriedState(states_of(1.0, 3.0, 2.0)).read(states_of(0.0)))
    with torch.inference_mode(reset):
        carried.reset(torch.tensor([False, True, False]))
    for rows in carried.read(states_of(0.0)):
        weight = torch.ones_like(rows, requires_grad=True)
        (weight * rows).sum().backward()
        assert weight.grad.mean(2).tolist() == [[1.0, 0.0, 2.0]]
        rows.add_(1.0)


def test_copies_and_state_dicts_keep_the_states():
    original, restored = CarriedState(states_of(1.0)), CarriedState()
    copies = [copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
    restored.states = original.state_dict()
    original.reset()
    assert [rows_of(carried, 1) for carried in (*copies, restored)] == [[1.0]] * 4
    assert original.state_dict() is None
