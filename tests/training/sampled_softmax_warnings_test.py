import re

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.training.sampled_softmax_warnings import SampledSoftmaxWarnings


@pytest.mark.parametrize("n_words", [300, 800_000])
@pytest.mark.parametrize("order", ["frequency", "reversed", "random"])
@pytest.mark.parametrize("n_tokens", [1000, 2**15])
def test_only_a_wrong_order_is_warned_about_once(n_words, order, n_tokens, caplog):
    """In words that follow Zipf's law, and not before there is enough text."""
    rng = np.random.RandomState(0)
    p = 1 / (np.arange(n_words) + 2.7)
    ids = rng.choice(n_words, n_tokens, p=p / p.sum())
    if order == "reversed":
        ids = n_words - 1 - ids
    elif order == "random":
        ids = rng.permutation(n_words)[ids]
    warn = SampledSoftmaxWarnings(LogUniformSampler(n_words, 20))
    for targets in torch.from_numpy(ids).split(128):
        warn(targets)
    first, *later = (record.getMessage() for record in caplog.records)
    assert re.search(f"softmax over 20 samples, .* not compare .* softmax over {n_words:,}", first)
    assert len(later) == (order != "frequency" and n_tokens > 2**14)
    assert all("not in the order of the frequency of its words" in message for message in later)


@pytest.mark.parametrize("word, is_warned_of", [(51, False), (52, True)])
def test_a_word_that_is_drawn_less_often_than_uniformly_is_too_rare(word, is_warned_of, caplog):
    """Word k has the probability ln(1 + 1 / (k + 1)) / ln(301); 1 / 300 is between these two."""
    SampledSoftmaxWarnings(LogUniformSampler(300, 20))(torch.full((2**14,), word))
    assert ("not in the order" in caplog.text) == is_warned_of


@pytest.mark.parametrize("special_ids, is_warned_of", [((), False), ((1, 2), True)])
def test_sentence_ends_and_unknown_words_do_not_hide_a_wrong_order(
    special_ids, is_warned_of, caplog
):
    """They are a third of a text whose vocabulary is small, and first in any order."""
    warn = SampledSoftmaxWarnings(LogUniformSampler(300, 20), special_ids)
    for _ in range(2**10):
        warn(torch.tensor([1, 2] * 5 + [150] * 20))
    assert ("not in the order" in caplog.text) == is_warned_of
