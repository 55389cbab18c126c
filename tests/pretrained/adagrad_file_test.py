"""The file with the state of Adagrad."""

import pytest
import torch

from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.pretrained import adagrad_file
from allennlp_elmo_plugin.pretrained.adagrad_file import read_adagrad_state, write_adagrad_state
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.support.bilm_tf import REFERENCE

N_BEFORE = 30  # the steps before bilm-tf's checkpoint


def test_the_state_of_bilm_tf_is_read_for_the_parameters_of_the_optimizer(tmp_path, monkeypatch):
    monkeypatch.setattr(adagrad_file, "ROWS_AT_ONCE", 16)
    folder = tmp_path / "imported"
    import_model(REFERENCE / "checkpoint", folder, REFERENCE / "data" / "vocab.txt")
    model = read_pretrained(str(folder)).modules()
    lstm = [p for name, p in model.named_parameters() if "lstm" in name]
    optimizer = torch.optim.Adagrad(lstm, 0.2, initial_accumulator_value=1.0)
    memory = {id(state["sum"]) for state in optimizer.state.values()}
    path = folder / "adagrad.hdf5"
    assert read_adagrad_state(path, model.named_parameters(), optimizer) == N_BEFORE
    assert not any((state["sum"] == 1.0).all() for state in optimizer.state.values())
    assert {id(state["sum"]) for state in optimizer.state.values()} == memory
    assert {float(state["step"]) for state in optimizer.state.values()} == {N_BEFORE}


def test_files_that_are_no_state_of_the_model(tmp_path):
    model = torch.nn.Linear(5, 300)
    optimizer = torch.optim.Adagrad(model.parameters(), 0.2, initial_accumulator_value=1.0)
    path = tmp_path / "state.hdf5"

    def fails(message, optimizer=optimizer):
        with pytest.raises((OSError, ValueError), match=message):
            read_adagrad_state(path, model.named_parameters(), optimizer)
        sums = [state["sum"] for state in optimizer.state.values() if state]
        assert all(bool((values == 1.0).all()) for values in sums)

    fails(".*state.hdf5")
    path.write_text("text")
    fails(".*state.hdf5: not an HDF5 file, or one cut off")
    write_adagrad_state(path, [], -1)
    fails(".*not a state of Adagrad")
    write_adagrad_state(path, [("weight", torch.ones(5, 300))], 5)
    fails(r".*has \(5, 300\) for the parameter 'weight' of shape \(300, 5\)")
    write_adagrad_state(path, [("weight", torch.full((300, 5), 7.0))], 5)
    fails(".*has nothing for the parameter 'bias'")
    fails("the optimizer SGD keeps no sums", torch.optim.SGD(model.parameters(), 0.1))
