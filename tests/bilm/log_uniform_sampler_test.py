import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from tests.support.bilm_tf import REFERENCE


@pytest.mark.parametrize("n_words, n_samples", [(50, 16), (50, 49), (1000, 1), (100_000, 2000)])
def test_samples_are_distinct_words(n_words, n_samples):
    torch.manual_seed(0)
    sampler = LogUniformSampler(n_words, n_samples)
    for _ in range(3):
        samples = sampler.sample()
        assert samples.ids.shape == (n_samples,) and samples.ids.dtype == torch.long
        assert len(samples.ids.unique()) == n_samples
        assert 0 <= samples.ids.min() and samples.ids.max() < n_words
        assert samples.num_tries >= n_samples


def test_words_come_as_often_as_drawn_one_by_one():
    torch.manual_seed(0)
    sampler = LogUniformSampler(40, 8)
    words = np.arange(40)
    p = np.log((words + 2) / (words + 1)) / np.log(41)
    rng = np.random.RandomState(0)
    n_batches = 4000
    counts, expected = np.zeros(40), np.zeros(40)
    for _ in range(n_batches):
        counts[sampler.sample().ids.numpy()] += 1
        expected[rng.choice(40, 8, replace=False, p=p)] += 1
    # Four standard deviations of the difference of two counts are below 0.045 here.
    np.testing.assert_allclose(counts / n_batches, expected / n_batches, atol=0.045)


def test_number_of_tries_is_that_of_one_by_one():
    sampler = LogUniformSampler(30, 12)
    for seed in range(20):
        torch.manual_seed(seed)
        sampler._n_draws = 3  # too few: more are drawn, and the first ones count
        samples = sampler.sample()
        torch.manual_seed(seed)
        seen, tries = [], 0
        chunks = iter([3, 3, 6, 12, 24, 48, 96, 192, 384])
        draws = iter(())
        while len(seen) < 12:
            word = next(draws, None)
            if word is None:
                draws = iter(sampler._draw(next(chunks)).tolist())
                word = next(draws)
            tries += 1
            if word not in seen:
                seen.append(word)
        assert samples.ids.tolist() == seen
        assert samples.num_tries == tries


@pytest.mark.parametrize("draw", ["sampler_a", "sampler_b", "sampler_c"])
def test_expected_counts_are_tensorflows(draw):
    tensorflow = np.load(REFERENCE / "sampled_softmax.npz")
    ids = tensorflow[f"{draw}/ids"]
    n_words = int(tensorflow[f"{draw}/range_max"])
    sampler = LogUniformSampler(n_words, min(len(ids), n_words - 1))
    num_tries = int(tensorflow[f"{draw}/num_tries"])
    every_id = tensorflow[f"{draw}/true_expected_count_of_every_id"].reshape(-1)
    for words, expected in (
        (torch.from_numpy(ids), tensorflow[f"{draw}/sampled_expected_count"]),
        (torch.arange(n_words), every_id),
    ):
        found = sampler.expected_count(words, num_tries)
        np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_expected_counts_where_no_draw_was_a_repeat():
    sampler = LogUniformSampler(50, 4)
    p = np.log(np.arange(2, 52) / np.arange(1, 51)) / np.log(51)
    found = sampler.expected_count(torch.arange(50), 4)
    np.testing.assert_allclose(found, 4 * p, rtol=1e-12)


def test_as_many_samples_as_words_are_refused():
    with pytest.raises(ValueError, match="vocabulary of 50 words"):
        LogUniformSampler(50, 50)
