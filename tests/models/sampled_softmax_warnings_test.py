import re

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.models.sampled_softmax_warnings import SampledSoftmaxWarnings


def text(n_words: int, order: str, n_tokens: int) -> torch.Tensor:
    """Words by Zipf's law, with the ids that they have in a vocabulary of some order."""
    rng = np.random.RandomState(0)
    p = 1 / (np.arange(n_words) + 2.7)
    ranks = rng.choice(n_words, n_tokens, p=p / p.sum())
    places = {
        "frequency": np.arange(n_words),
        "reversed": np.arange(n_words)[::-1],
        "random": rng.permutation(n_words),
    }
    return torch.from_numpy(places[order].copy()[ranks])


@pytest.mark.parametrize("n_words", [300, 2000, 800_000])
@pytest.mark.parametrize("order", ["frequency", "reversed", "random"])
@pytest.mark.parametrize("n_tokens", [1000, 2**14])
def test_only_a_wrong_order_is_warned_about_once(n_words, order, n_tokens, caplog):
    """And little text doesn't show the order."""
    warn = SampledSoftmaxWarnings(n_words, 20)
    for targets in text(n_words, order, n_tokens).split(100):
        warn(targets)
    if n_tokens == 2**14:
        warn(text(n_words, "reversed", n_tokens))
    is_wrong = order != "frequency" and n_tokens == 2**14
    assert caplog.text.count("not in the order of the frequency of its words") == is_wrong
    message = f"a softmax over 20 samples, .* not compare .* full softmax over {n_words} words"
    (first, *others) = caplog.records
    assert re.search(message, first.getMessage()) and len(others) == is_wrong
