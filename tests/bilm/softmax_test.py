import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm import softmax as module
from allennlp_elmo_plugin.bilm.log_uniform_sampler import Samples
from allennlp_elmo_plugin.bilm.softmax import Softmax
from tests.support.bilm_tf import REFERENCE


@pytest.fixture
def tensorflow():
    return dict(np.load(REFERENCE / "sampled_softmax.npz").items())


@pytest.mark.parametrize("remove_hits", [True, False])
def test_sampled_loss_is_tensorflows(tensorflow, remove_hits, monkeypatch):
    monkeypatch.setattr(module, "_MIN_ROWS", 1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 5 * 16 * 4)  # rows in three chunks
    prefix = "" if remove_hits else "keep_hits_"
    softmax = Softmax(50, 8, 16)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(tensorflow["W"]))
        softmax.bias.copy_(torch.from_numpy(tensorflow["b"]))
    hidden = torch.from_numpy(tensorflow["inputs"]).requires_grad_()
    samples = Samples(torch.from_numpy(tensorflow["sampled_ids"]).long(), 29)
    targets = torch.from_numpy(tensorflow["targets"]).long()
    loss = softmax.loss(hidden, targets, samples, remove_hits)
    loss.backward()
    assert loss.item() == pytest.approx(tensorflow[f"{prefix}loss"].mean(), abs=2e-6)
    for name, grad in (
        ("dW", softmax.weight.grad),
        ("db", softmax.bias.grad),
        ("dinputs", hidden.grad),
    ):
        assert grad.is_sparse == (name != "dinputs")
        grad = grad.to_dense() if grad.is_sparse else grad
        np.testing.assert_allclose(grad, tensorflow[f"{prefix}dmean_{name}"], atol=1e-6)


def test_expected_counts_are_tensorflows(tensorflow):
    sampler = Softmax(50, 8, 16).sampler
    for ids, counts in (("targets", "true"), ("sampled_ids", "sampled")):
        found = sampler.expected_count(torch.from_numpy(tensorflow[ids]), 29)
        expected = tensorflow[f"{counts}_expected_count"].reshape(-1)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("n_chunks", [1, 3])
def test_full_loss_is_cross_entropy(n_chunks, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(module, "_MIN_ROWS", 1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7 * 11 * 8 // n_chunks)
    softmax = Softmax(11, 5).double()
    hidden = torch.randn(7, 5, dtype=torch.double, requires_grad=True)
    targets = torch.randint(11, (7,))
    parameters = [hidden, softmax.weight, softmax.bias]
    expected = torch.nn.functional.cross_entropy(
        hidden @ softmax.weight.t() + softmax.bias, targets
    )
    grads = torch.autograd.grad(3 * expected, parameters)
    loss = softmax.loss(hidden, targets)
    torch.testing.assert_close(loss, expected)
    for grad, expected_grad in zip(torch.autograd.grad(3 * loss, parameters), grads):
        torch.testing.assert_close(grad, expected_grad)
    log_probabilities = softmax.log_probabilities(hidden, targets)
    torch.testing.assert_close(-log_probabilities.mean(), expected.detach())
    assert softmax.log_probabilities(hidden[:0], targets[:0]).shape == (0,)


def test_evaluation_never_holds_tokens_by_vocabulary(monkeypatch):
    largest = []
    matrix_product = module.matrix_product

    def measured(*args):
        result = matrix_product(*args)
        largest.append(result.numel() * result.element_size())
        return result

    monkeypatch.setattr(module, "matrix_product", measured)
    monkeypatch.setattr(module, "_MIN_ROWS", 1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 2**16)
    softmax = Softmax(1000, 4)
    softmax.log_probabilities(torch.randn(200, 4), torch.randint(1000, (200,)))
    softmax.loss(torch.randn(200, 4), torch.randint(1000, (200,)))
    assert max(largest) <= 2**16 < 200 * 1000 * 4


def test_shared_weight_gets_both_gradients():
    embedding = torch.nn.Parameter(torch.randn(30, 4))
    softmax = Softmax(30, 4, 5, weight=embedding)
    hidden = torch.nn.functional.embedding(torch.tensor([1, 2]), embedding, sparse=True)
    softmax.loss(hidden, torch.tensor([2, 3])).backward()
    assert embedding.grad.is_sparse
    assert {1, 2, 3} <= set(embedding.grad.coalesce().indices()[0].tolist())
