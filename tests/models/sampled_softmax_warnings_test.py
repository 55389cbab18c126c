import logging

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.models.sampled_softmax_warnings import SampledSoftmaxWarnings

LOGGER = "allennlp_elmo_plugin.models.sampled_softmax_warnings"


def text(n_words: int, order: str, n_tokens: int = 2**14) -> torch.Tensor:
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
def test_only_a_wrong_order_is_warned_about_once(n_words, order, caplog):
    check = SampledSoftmaxWarnings(n_words, 20)
    with caplog.at_level(logging.WARNING, LOGGER):
        for targets in text(n_words, order).split(100):
            check(targets)
        found = len(caplog.records)
        check(text(n_words, "reversed"))
    assert found == len(caplog.records) == 1 + (order != "frequency")
    assert caplog.text.count("not in the order of the frequency") == found - 1
    assert "20 samples, which is easier: do not compare them" in caplog.text


def test_few_words_of_text_say_nothing(caplog):
    check = SampledSoftmaxWarnings(300, 20)
    with caplog.at_level(logging.WARNING, LOGGER):
        check(text(300, "reversed", 1000))
    assert "order" not in caplog.text
