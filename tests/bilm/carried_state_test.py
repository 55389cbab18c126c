import contextlib
import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.packing import PackedBatch

KEY = "forward", 0
PACKING = PackedBatch([1, 1, 1], 1)
ZERO = torch.zeros(3, 2), torch.zeros(3, 4)


def _carried(*values: float) -> CarriedState:
    """A state whose rows have these values."""
    carried = CarriedState()
    rows = torch.tensor(values).unsqueeze(1)
    carried.write(KEY, PACKING, (rows.expand(-1, 2), rows.expand(-1, 4)))
    return carried


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3.0])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_reset_rows_are_zero_whatever_was_in_them(value, dtype):
    carried = _carried(1.0, value, 2.0)
    carried.reset(torch.tensor([0, 1, 0], dtype=dtype))
    for rows in carried.read(KEY, PACKING, ZERO):
        assert rows.mean(1).tolist() == [1.0, 0.0, 2.0]
    # A batch of fewer or more rows
    carried = _carried(value, value, 2.0)
    carried.reset_batch(torch.tensor([True]))
    carried.reset_batch(torch.tensor([False, True, False, True]))
    for rows in carried.read(KEY, PACKING, ZERO):
        assert rows.mean(1).tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("written, reset", [(True, True), (True, False), (False, True)])
def test_states_of_inference_mode_can_be_used_outside_of_it(written, reset):
    def mode(is_inference):
        return torch.inference_mode() if is_inference else contextlib.nullcontext()

    with mode(written):
        carried = _carried(1.0, math.nan, 2.0)
    with mode(reset):
        carried.reset(torch.tensor([False, True, False]))
    for rows in (*carried._states[KEY], *carried.read(KEY, PACKING, ZERO)):
        assert not rows.is_inference()
        weight = torch.ones_like(rows, requires_grad=True)
        (weight * rows).sum().backward()
        assert weight.grad.mean(1).tolist() == [1.0, 0.0, 2.0]
        rows.add_(1.0)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_copies_have_locks_of_their_own(duplicate):
    original = CarriedState()
    with ThreadPoolExecutor(1) as pool, original.lock:
        assert pool.submit(duplicate(original).lock.acquire, blocking=False).result()
