import math

import pytest
import torch

from allennlp_elmo_plugin.models.token_perplexity import TokenPerplexity


def test_every_token_counts_once():
    metric = TokenPerplexity()
    assert metric.get_metric() == 0.0
    metric(torch.tensor(6.0), 3)
    metric(torch.tensor(1.0), 1)
    assert metric.get_metric(reset=True) == pytest.approx(math.exp(1.75))
    assert metric.get_metric() == 0.0


def test_what_no_float_holds_is_infinite():
    metric = TokenPerplexity()
    metric(torch.tensor(1000.0), 1)
    assert metric.get_metric() == math.inf
