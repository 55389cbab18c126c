import math

import pytest
import torch

from allennlp_elmo_plugin.models.token_perplexity import AgreeingMetrics, TokenPerplexity


def test_every_token_counts_once():
    metric = TokenPerplexity()
    metric(torch.tensor(6.0), 3)
    metric(torch.tensor(1.0), 1)
    assert metric.get_metric() == metric.get_metric(reset=True) == pytest.approx(math.exp(1.75))
    assert metric.get_metric() == 0.0
    metric(torch.tensor(1000.0), 1)
    assert metric.get_metric() == math.inf


@pytest.mark.parametrize("perplexity, loss", [(7.0, math.log(7)), (0.0, 5.0), (math.inf, 5.0)])
def test_the_loss_is_that_of_the_perplexity(perplexity, loss):
    metrics = AgreeingMetrics(perplexity=perplexity)
    metrics["loss"] = metrics["other"] = 5.0
    assert metrics == {"perplexity": perplexity, "loss": loss, "other": 5.0}
