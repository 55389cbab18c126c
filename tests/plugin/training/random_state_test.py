import random

import numpy
import torch

from allennlp_elmo_plugin.plugin.training.random_state import get_random_state, set_random_state

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def draw():
    # An odd number of normal numbers: NumPy keeps the other one of a pair.
    return random.gauss(0, 1), numpy.random.normal(size=3).tolist(), torch.randn(3).tolist()


def test_numbers_are_drawn_again(tmp_path, monkeypatch):
    """Also from a file that `torch.load` reads without trusting it, and on another device."""
    calls = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: f"of {device}")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: calls.append(given))
    for saved_on, used_on in ((CPU, CPU), (CPU, GPU), (GPU, CPU), (GPU, GPU)):
        assert calls == []
        torch.save(get_random_state(saved_on), tmp_path / "state")
        first = draw()
        set_random_state(torch.load(tmp_path / "state", weights_only=True), used_on)
        assert draw() == first
    assert calls == [("of cuda:0", GPU)]
