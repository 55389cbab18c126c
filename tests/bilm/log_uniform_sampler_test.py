import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from tests.support.bilm_tf import REFERENCE


def test_words_are_drawn_as_often_as_expected():
    torch.manual_seed(0)
    n_draws, p = 10**6, np.log(np.arange(2, 42) / np.arange(1, 41)) / np.log(41)
    counts = np.bincount(LogUniformSampler(40, 8)._draw(n_draws), minlength=40)
    # Five standard deviations
    assert (np.abs(counts - n_draws * p) < 5 * (n_draws * p * (1 - p)) ** 0.5).all()


@pytest.mark.parametrize("n_words, n_samples", [(30, 12), (50, 49), (1000, 1), (100_000, 2000)])
def test_samples_are_the_first_distinct_ones_of_as_many_tries_as_they_took(n_words, n_samples):
    sampler = LogUniformSampler(n_words, n_samples)
    sampler.load_state_dict({"n_draws": 1})  # too few, so that more are drawn
    for seed in range(3):
        torch.manual_seed(seed)
        chunk = sampler.state_dict()["n_draws"]
        samples, random_state = sampler.sample(), torch.get_rng_state()
        torch.manual_seed(seed)
        draws = sampler._draw(chunk).tolist()
        while len(set(draws)) < n_samples:
            draws += sampler._draw(len(draws)).tolist()
        assert torch.equal(random_state, torch.get_rng_state())
        assert samples.ids.tolist() == list(dict.fromkeys(draws))[:n_samples]
        assert len(set(draws[: samples.num_tries])) == n_samples
        assert draws.index(samples.ids[-1]) == samples.num_tries - 1
        assert samples.num_tries <= sampler.state_dict()["n_draws"] <= 1.2 * samples.num_tries + 17


@pytest.mark.parametrize("draw", ["sampler_a", "sampler_b", "sampler_c"])
def test_expected_counts_are_tensorflows(draw):
    arrays = np.load(REFERENCE / "sampled_softmax.npz")
    tensorflow = {name[len(draw) + 1 :]: arrays[name] for name in arrays if name.startswith(draw)}
    ids, n_words = tensorflow["ids"], int(tensorflow["range_max"])
    sampler = LogUniformSampler(n_words, min(len(ids), n_words - 1))
    counts = sampler.expected_count(torch.arange(n_words), int(tensorflow["num_tries"]))
    expected = tensorflow["true_expected_count_of_every_id"].reshape(-1)
    np.testing.assert_allclose(counts, expected, rtol=2e-5)
    np.testing.assert_allclose(counts[ids], tensorflow["sampled_expected_count"], rtol=2e-5)
    # Without repeated draws
    p = np.log1p(1 / np.arange(1, n_words + 1)) / np.log(n_words + 1)
    counts = sampler.expected_count(torch.arange(n_words), sampler.n_samples)
    np.testing.assert_allclose(counts, sampler.n_samples * p, rtol=1e-12)


@pytest.mark.parametrize("n_samples", [0, 50])
def test_no_samples_and_as_many_as_words_are_refused(n_samples):
    with pytest.raises(ValueError, match="vocabulary of 50 words"):
        LogUniformSampler(50, n_samples)
