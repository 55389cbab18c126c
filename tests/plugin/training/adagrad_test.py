import copy

import torch
from allennlp.common import Params
from allennlp.training.optimizers import Optimizer

from tests.plugin.components.bidirectional_lm_test import ADAGRAD
from tests.support.pretend_gpu import gpu_for_tests


def ours(model):
    groups = [[["2"], {"lr": 0.1}], [["1.bias"], {}]]
    params = Params({**ADAGRAD, "parameter_groups": groups})
    return Optimizer.from_params(params, model_parameters=list(model.named_parameters()))


def train(model, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        words = torch.tensor([1, 5, 1], device=model[0].weight.device)
        model(words).square().sum().backward()
        optimizer.step()
    return optimizer.state_dict()


def test_a_sparse_gradient_changes_no_numbers_and_does_not_slow_the_others_down():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 4), torch.nn.Linear(4, 9)
    )
    on_gpu, of_torch = copy.deepcopy(model), copy.deepcopy(model)
    groups = ours(of_torch).param_groups
    expected = torch.optim.Adagrad(groups, 0.2, initial_accumulator_value=1.0, eps=0.0)
    # torch's optimizer and ours can read each other's checkpoints.
    states = train(model, ours(model)), train(of_torch, expected)
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert all(map(torch.equal, model.parameters(), of_torch.parameters()))
    with gpu_for_tests() as gpu:
        with torch.profiler.profile() as profile:
            train(on_gpu.to(gpu), ours(on_gpu))
        for one, other in zip(on_gpu.cpu().parameters(), model.parameters()):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    counts = {event.key: event.count for event in profile.key_averages()}
    # Three groups have no sparse gradient.
    assert counts["aten::_foreach_addcdiv_"] == 3 * counts["aten::sparse_mask"]
