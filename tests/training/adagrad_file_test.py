import pytest
import torch

from allennlp_elmo_plugin.training import adagrad_file
from allennlp_elmo_plugin.training.adagrad_file import read_adagrad_state, write_adagrad_state


def make(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(5, 300)
    model.scale = torch.nn.Parameter(torch.ones(1))
    # As the weights of the package's LSTM lie in memory.
    model.weight = torch.nn.Parameter(torch.randn(5, 300).t())
    optimizer = torch.optim.Adagrad(model.parameters(), 0.1, initial_accumulator_value=1.0, eps=0.0)
    return model, optimizer


def train(model, optimizer, n_steps):
    inputs = torch.arange(35.0).view(7, 5) / 35
    for _ in range(n_steps):
        optimizer.zero_grad()
        (model(inputs) * model.scale).pow(2).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("n_rows", [16, 2**14])
def test_round_trip(tmp_path, monkeypatch, n_rows):
    monkeypatch.setattr(adagrad_file, "_ROWS_AT_ONCE", n_rows)
    model, optimizer = make()
    train(model, optimizer, 5)
    sums = [(name, optimizer.state[p]["sum"]) for name, p in model.named_parameters()]
    write_adagrad_state(tmp_path / "state.hdf5", sums, 5)
    other, fresh = make(1)
    other.load_state_dict(model.state_dict())
    memory = {id(state["sum"]) for state in fresh.state.values()}
    assert read_adagrad_state(tmp_path / "state.hdf5", other.named_parameters(), fresh) == 5
    assert {id(state["sum"]) for state in fresh.state.values()} == memory
    for each in ((model, optimizer), (other, fresh)):
        train(*each, 3)
    for name, parameter in other.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name]), name
        assert float(fresh.state[parameter]["step"]) == 8


def test_bad_files(tmp_path):
    """Errors are tested with the callback that reads the file."""
    model, optimizer = make()
    write_adagrad_state(tmp_path / "state.hdf5", [("scale", torch.full((1,), 7.0))], 5)
    with pytest.raises(ValueError, match="has nothing for the parameter 'weight'"):
        read_adagrad_state(tmp_path / "state.hdf5", model.named_parameters(), optimizer)
    assert all(bool((state["sum"] == 1.0).all()) for state in optimizer.state.values())
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match="SGD keeps no sums"):
        read_adagrad_state(tmp_path / "state.hdf5", model.named_parameters(), sgd)
    write_adagrad_state(tmp_path / "state.hdf5", [], -1)
    with pytest.raises(ValueError, match="not a state of Adagrad"):
        read_adagrad_state(tmp_path / "state.hdf5", model.named_parameters(), optimizer)
