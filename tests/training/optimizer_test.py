"""Optimizers for a softmax with sparse gradients, and the schedule of Adam, against AllenNLP's."""

import copy

import pytest
import torch

from allennlp_elmo_plugin.training.optimizer import OPTIMIZERS, Adam
from tests.support.pretend_gpu import gpu_for_tests
from tests.training.trainer_test import make_trainer


def train(model, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        words = torch.tensor([1, 5, 1], device=model[0].weight.device)
        model(words).square().sum().backward()
        optimizer.step()
    return optimizer.state_dict()


def test_a_sparse_gradient_changes_no_numbers_of_adagrad_and_does_not_slow_the_others_down():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 4), torch.nn.Linear(4, 9)
    )
    on_gpu, of_torch = copy.deepcopy(model), copy.deepcopy(model)
    make = OPTIMIZERS["adagrad"].make
    settings = {"initial_accumulator_value": 1.0, "eps": 0.0}
    expected = torch.optim.Adagrad(of_torch.parameters(), 0.2, **settings)
    # torch's optimizer and ours can read each other's checkpoints.
    states = train(model, make(model.parameters(), 0.2)), train(of_torch, expected)
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert all(map(torch.equal, model.parameters(), of_torch.parameters()))
    with gpu_for_tests() as gpu:
        on_gpu.to(gpu)
        with torch.profiler.profile() as profile:
            train(on_gpu, make(on_gpu.parameters(), 0.2))
        for one, other in zip(on_gpu.cpu().parameters(), model.parameters()):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    counts = {event.key: event.count for event in profile.key_averages()}
    # One group has the four dense gradients.
    assert counts["aten::_foreach_addcdiv_"] == counts["aten::sparse_mask"]


def test_adam_is_dense_sparse_adam():
    """With a tiny `eps`, which torch adds at another place for dense gradients."""
    optimizers = pytest.importorskip("allennlp.training.optimizers")
    settings = {"lr": 0.1, "eps": 1e-12}
    start = torch.linspace(-1, 1, 20).view(5, 4)
    results = []
    for make in (Adam, optimizers.DenseSparseAdam):
        dense, sparse = (torch.nn.Parameter(start.clone()) for _ in range(2))
        named = [("dense", dense), ("sparse", sparse)]
        optimizer = make([dense, sparse] if make is Adam else named, **settings)
        for step in range(1, 6):
            dense.grad = step * start.flip(0) ** 2 - 0.5
            rows = torch.tensor([[step % 3, 4]])
            sparse.grad = torch.sparse_coo_tensor(rows, dense.grad[:2], start.shape)
            optimizer.step()
        results.append((dense.detach(), sparse.detach()))
    torch.testing.assert_close(*results)
    moved = (results[0][1] != start).all(1)
    assert moved.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_runs_its_hooks_once(name):
    """Also if the process has used torch's own optimizers, whose steps ours contain."""
    parameter = torch.nn.Parameter(torch.ones(3))
    for kind in (torch.optim.Adagrad, torch.optim.Adam, torch.optim.SparseAdam):
        kind([parameter])
    optimizer, calls = OPTIMIZERS[name].make([parameter], 0.1), []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    assert optimizer.step(lambda: parameter.sum().backward() or "loss") == "loss"
    assert calls == ["before", "after"] and (parameter < 1).all()


@pytest.mark.parametrize("warmup_steps", [0, 2, 300])  # 300 become a tenth of the batches
def test_the_rate_of_adam(warmup_steps, tmp_path):
    schedulers = pytest.importorskip("allennlp.training.learning_rate_schedulers")
    settings = {"optimizer": "adam", "warmup_steps": warmup_steps, "num_epochs": 2}
    trainer = make_trainer(tmp_path, "cpu", 20, None, **settings)
    total = 2 * len(trainer.text)
    rates = []
    trainer.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(rate(optimizer)))
    trainer.train()
    other = torch.optim.SGD(trainer.model.parameters(), 0.002)
    n_warmup = min(warmup_steps, total // 10)
    schedule = schedulers.LinearWithWarmup(other, 2, len(trainer.text), n_warmup)
    expected = []
    for n_batches in range(len(rates)):
        schedule.step_batch(n_batches + 1)  # before each update, as AllenNLP's trainer
        expected.append(rate(other))
    assert rates == pytest.approx(expected)
    assert max(rates) == pytest.approx(0.002, rel=0.02) and rates[-1] < 0.0001
    assert 0 < trainer.epochs[0]["training_seconds"] < 60


def rate(optimizer):
    return optimizer.param_groups[0]["lr"]
