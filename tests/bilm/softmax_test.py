from unittest.mock import Mock

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import softmax_loss as module
from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.softmax import Softmax
from tests.support.bilm_tf import REFERENCE


def test_sampled_loss_is_tensorflows(monkeypatch):
    monkeypatch.setattr(module, "MIN_ROWS", 1)
    monkeypatch.setattr(module, "CHUNK_BYTES", 5 * 16 * 4)  # rows in three chunks
    arrays = np.load(REFERENCE / "sampled_softmax.npz")
    tensorflow = {name: torch.from_numpy(arrays[name]) for name in arrays if arrays[name].shape}
    softmax = Softmax(50, 8, 16)
    with torch.no_grad():
        softmax.weight.copy_(tensorflow["W"])
        softmax.bias.copy_(tensorflow["b"])
    hidden = tensorflow["inputs"].requires_grad_()
    samples = Samples(tensorflow["sampled_ids"].long(), 29)
    loss = softmax.loss(hidden, tensorflow["targets"].long(), samples)
    loss.backward()
    torch.testing.assert_close(loss.detach(), tensorflow["loss"].mean(), rtol=0, atol=2e-6)
    for name, tensor in (("dW", softmax.weight), ("db", softmax.bias), ("dinputs", hidden)):
        assert tensor.grad.is_sparse == (name != "dinputs")
        grad, expected = tensor.grad.to_dense(), tensorflow[f"dmean_{name}"]
        torch.testing.assert_close(grad, expected, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("chunk_bytes", [2**24, 2000, 8])
def test_full_loss_is_cross_entropy(chunk_bytes, monkeypatch):
    """With and without a gradient, however few logits are held at a time."""
    torch.manual_seed(0)
    products = Mock(wraps=module.matrix_product)
    monkeypatch.setattr(module, "matrix_product", products)
    monkeypatch.setattr(module, "MIN_ROWS", 1)
    monkeypatch.setattr(module, "EVALUATED_ROWS", 8)
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    softmax = Softmax(110, 5).double()
    hidden = torch.randn(40, 5, dtype=torch.double, requires_grad=True)
    targets = torch.randint(110, (40,))
    parameters = [hidden, softmax.weight, softmax.bias]
    logits = hidden @ softmax.weight.t() + softmax.bias
    expected = torch.nn.functional.cross_entropy(logits, targets)
    loss = softmax.loss(hidden, targets)
    torch.testing.assert_close(loss, expected)
    expected_grads = torch.autograd.grad(3 * expected, parameters, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, parameters), expected_grads)
    log_probabilities = softmax.log_probabilities(hidden, targets)
    expected = logits.log_softmax(1)[range(40), targets].detach()
    torch.testing.assert_close(log_probabilities, expected)
    assert softmax.log_probabilities(hidden[:0], targets[:0]).shape == (0,)
    largest = max(len(args[0]) * args[1].size(1) for args, _ in products.call_args_list)
    assert largest <= max(chunk_bytes // 8, 110)
    hidden = 300 * softmax.weight.detach()
    assert (softmax.log_probabilities(hidden, torch.arange(110)) <= 0).all()


def sampled_loss(softmax, hidden, targets, samples):
    """The cross entropy over the samples and the target of each row."""
    counts = softmax.sampler.expected_count(torch.arange(12), samples.num_tries)
    logits = hidden @ softmax.weight.t() + softmax.bias - counts.log()
    left_out = torch.ones(logits.shape, dtype=torch.bool)
    left_out[:, samples.ids] = False
    left_out.scatter_(1, targets.unsqueeze(1), False)
    return torch.nn.functional.cross_entropy(logits.masked_fill(left_out, -float("inf")), targets)


@pytest.mark.parametrize("targets", [[5, 3, 9], [4, 4, 4, 4], [2, 2, 5, 7, 5], [11]])
def test_a_sparse_gradient_has_each_row_once(targets):
    """Words may be targets, samples or both, in any order, any number of times."""
    torch.manual_seed(0)
    softmax = Softmax(12, 3, 4).double()
    samples = Samples(torch.tensor([5, 0, 7, 2]), 6)
    hidden = torch.randn(len(targets), 3, dtype=torch.double, requires_grad=True)
    parameters = [hidden, softmax.weight, softmax.bias]
    rows = sorted({*targets, *samples.ids.tolist()})
    targets = torch.tensor(targets)
    expected_loss = sampled_loss(softmax, hidden, targets, samples)
    expected = torch.autograd.grad(3 * expected_loss, parameters)
    loss = softmax.loss(hidden, targets, samples)
    torch.testing.assert_close(loss, expected_loss)
    for retain_graph in (True, False):
        grads = torch.autograd.grad(3 * loss, parameters, retain_graph=retain_graph)
        torch.testing.assert_close([grad.to_dense() for grad in grads], [*expected])
        for grad in grads[1:]:
            assert grad.is_coalesced() and grad.indices()[0].tolist() == rows
