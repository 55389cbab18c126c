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


def test_sampled_loss_is_tensorflows(tensorflow, monkeypatch):
    monkeypatch.setattr(module, "_MIN_ROWS", 1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 5 * 16 * 4)  # rows in three chunks
    softmax = Softmax(50, 8, 16)
    with torch.no_grad():
        softmax.weight.copy_(torch.from_numpy(tensorflow["W"]))
        softmax.bias.copy_(torch.from_numpy(tensorflow["b"]))
    hidden = torch.from_numpy(tensorflow["inputs"]).requires_grad_()
    samples = Samples(torch.from_numpy(tensorflow["sampled_ids"]).long(), 29)
    targets = torch.from_numpy(tensorflow["targets"]).long()
    loss = softmax.loss(hidden, targets, samples)
    loss.backward()
    assert loss.item() == pytest.approx(tensorflow["loss"].mean(), abs=2e-6)
    for name, grad in (
        ("dW", softmax.weight.grad),
        ("db", softmax.bias.grad),
        ("dinputs", hidden.grad),
    ):
        assert grad.is_sparse == (name != "dinputs")
        grad = grad.to_dense() if grad.is_sparse else grad
        np.testing.assert_allclose(grad, tensorflow[f"dmean_{name}"], atol=1e-6)


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


def _dense_loss(softmax, hidden, targets, samples):
    """The sampled loss written with autograd alone: logits of the target, and of the others."""
    offsets = [softmax.sampler.expected_count(ids, samples.num_tries).log() for ids in samples[:1]]
    weight, bias = softmax.weight, softmax.bias
    logits = hidden @ weight[samples.ids].t() + bias[samples.ids] - offsets[0]
    logits = logits.masked_fill(samples.ids == targets.unsqueeze(1), -float("inf"))
    target_offsets = softmax.sampler.expected_count(targets, samples.num_tries).log()
    target_logits = (hidden * weight[targets]).sum(1) + bias[targets] - target_offsets
    all_logits = torch.cat([target_logits.unsqueeze(1), logits], 1)
    return (all_logits.logsumexp(1) - target_logits).mean()


@pytest.mark.parametrize(
    "targets",
    [[5, 3, 9], [4, 4, 4, 4], [2, 2, 5, 7, 5], [11]],
    ids=["samples and others", "one word", "repeated", "one token"],
)
def test_gradient_of_each_row_comes_once(targets):
    """Whatever is a target, a sample, or both, in any order, any number of times."""
    torch.manual_seed(0)
    softmax = Softmax(12, 3, 4).double()
    samples = Samples(torch.tensor([5, 0, 7, 2]), 6)
    hidden = torch.randn(len(targets), 3, dtype=torch.double, requires_grad=True)
    parameters = [hidden, softmax.weight, softmax.bias]
    targets = torch.tensor(targets)
    expected_loss = _dense_loss(softmax, hidden, targets, samples)
    expected = torch.autograd.grad(3 * expected_loss, parameters)
    loss = softmax.loss(hidden, targets, samples)
    torch.testing.assert_close(loss, expected_loss)
    kept = torch.autograd.grad(3 * loss, parameters, retain_graph=True)
    rows = sorted({*targets.tolist(), *samples.ids.tolist()})
    for grads in (kept, torch.autograd.grad(3 * loss, parameters)):
        for grad, expected_grad in zip(grads, expected):
            torch.testing.assert_close(grad.to_dense(), expected_grad)
        for grad in grads[1:]:
            assert grad.is_coalesced() and grad.indices()[0].tolist() == rows


@pytest.mark.parametrize("n_words", [1, 5, 40])
def test_log_probabilities_of_words_in_chunks(n_words, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(module, "_EVALUATED_ROWS", 3)
    monkeypatch.setattr(module, "_CHUNK_BYTES", n_words * 3 * 4)
    softmax = Softmax(23, 4)
    hidden, targets = 9 * torch.randn(7, 4), torch.randint(23, (7,))
    with torch.no_grad():
        expected = (hidden @ softmax.weight.t() + softmax.bias).log_softmax(1)
    actual = softmax.log_probabilities(hidden, targets)
    torch.testing.assert_close(actual, expected.gather(1, targets.unsqueeze(1)).squeeze(1))
    one_by_one = [
        softmax.log_probabilities(*each) for each in zip(hidden.split(1), targets.split(1))
    ]
    torch.testing.assert_close(torch.cat(one_by_one), actual)
    hidden = 300 * softmax.weight.detach()[:1]
    assert (softmax.log_probabilities(hidden, torch.tensor([0])) <= 0).all()
