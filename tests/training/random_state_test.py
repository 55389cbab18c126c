import random

import numpy
import pytest
import torch

from allennlp_elmo_plugin.training.random_state import get_random_state, set_random_state

CPU = torch.device("cpu")


def draw():
    # An odd number of normal numbers: NumPy keeps the other one of a pair.
    return random.gauss(0, 1), numpy.random.normal(size=3).tolist(), torch.randn(3).tolist()


def test_numbers_are_drawn_again(tmp_path):
    """Also from a file that `torch.load` reads without trusting it."""
    draw()
    torch.save(get_random_state(CPU), tmp_path / "state")
    first = draw()
    assert draw() != first
    set_random_state(torch.load(tmp_path / "state", weights_only=True), CPU)
    assert draw() == first


@pytest.mark.parametrize("saved", ["cpu", "cuda"])
@pytest.mark.parametrize("restored", ["cpu", "cuda"])
def test_the_state_of_a_gpu(saved, restored, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: f"of {device}")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: calls.append(given))
    devices = [torch.device(each, 0) for each in (saved, restored)]
    set_random_state(get_random_state(devices[0]), devices[1])
    both = saved == restored == "cuda"
    assert calls == ([("of cuda:0", torch.device("cuda:0"))] if both else [])
