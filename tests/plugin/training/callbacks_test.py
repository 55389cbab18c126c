"""The callbacks, and the file with the state of Adagrad that one of them reads."""

import copy
from types import SimpleNamespace

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from allennlp.training import gradient_descent_trainer

from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.training.callbacks import AdagradStateCallback
from allennlp_elmo_plugin.pretrained import adagrad_file
from allennlp_elmo_plugin.pretrained.adagrad_file import write_adagrad_state
from tests.plugin.components.bidirectional_lm_test import ADAGRAD, of_run, read
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables
from tests.support.training_runs import metrics, train_here, write_config

N_BEFORE, N_AFTER = 30, 10  # the steps before bilm-tf's checkpoint, and after it


@pytest.fixture
def imported(tmp_path):
    """bilm-tf's checkpoint, imported."""
    folder = tmp_path / "imported"
    import_model(REFERENCE / "checkpoint", folder, REFERENCE / "data" / "vocab.txt")
    return folder


def test_an_imported_model_continues_like_a_run_that_never_stopped(imported, tmp_path, monkeypatch):
    """The reference takes all steps with one optimizer; bilm-tf doesn't save the LSTM's states."""
    monkeypatch.setattr(adagrad_file, "ROWS_AT_ONCE", 16)
    text = tmp_path / "twice.txt"
    text.write_text((REFERENCE / "data" / "train.txt").read_text("utf-8") * 2, encoding="utf-8")
    options, arrays = load_run("train_charcnn")
    vocab = read_vocabulary(tmp_path / "vocabulary")
    batches = list(read(vocab, str(text), **of_run(options)))
    whole = BidirectionalLanguageModel(vocab, options=options)
    set_variables(whole, arrays, "init")
    fresh_states = copy.deepcopy(whole._carried)
    optimizer = torch.optim.Adagrad(whole.parameters(), 0.2, initial_accumulator_value=1.0, eps=0.0)
    for number, batch in enumerate(batches[:N_BEFORE] + batches[:N_AFTER]):
        if number == N_BEFORE:
            whole._carried = fresh_states
        optimizer.zero_grad()
        whole(**batch)["loss"].backward()
        gradient_descent_trainer.clip_grad_norm_(whole.parameters(), 10.0)
        optimizer.step()

    archive = str(imported / "model.tar.gz")
    config = load_archive(archive).config.as_dict(quiet=True)
    callback = {"type": "adagrad_state", "file": str(imported / "adagrad.hdf5")}
    trainer = {"num_epochs": 1, "optimizer": dict(ADAGRAD), "grad_norm": 10.0}
    config.update(
        model={"type": "from_archive", "archive_file": archive},
        vocabulary={"type": "from_files", "directory": archive},
        train_data_path=str(text),
        data_loader={"type": "truncated_bptt", "batches_per_epoch": N_AFTER},
        trainer={**trainer, "callbacks": [callback]},
    )
    trained = dict(train_model(Params(config), str(tmp_path / "run")).named_parameters())
    for name, parameter in whole.named_parameters():
        torch.testing.assert_close(trained[name], parameter, atol=3e-6, rtol=0, msg=name)


def start(model, optimizer, path, epoch=0, batch=0):
    trainer = SimpleNamespace(model=model, optimizer=optimizer, _start_after_epochs_completed=epoch)
    trainer._start_after_batches_in_epoch_completed = batch
    AdagradStateCallback("", str(path)).on_start(trainer)
    return [bool((state["sum"] == 1.0).all()) for state in optimizer.state.values() if state]


def test_when_the_state_is_read(imported, caplog):
    """Not in a recovered run, and only for the optimizer's parameters."""
    model = load_archive(imported / "model.tar.gz").model
    lstm = [p for name, p in model.named_parameters() if "lstm" in name]
    optimizer = torch.optim.Adagrad(lstm, 0.2, initial_accumulator_value=1.0)
    memory = {id(state["sum"]) for state in optimizer.state.values()}
    path = imported / "adagrad.hdf5"
    assert all(start(model, optimizer, path, epoch=1))
    assert all(start(model, optimizer, path, batch=1))
    with caplog.at_level("INFO"):
        assert not any(start(model, optimizer, path))
    assert f"after {N_BEFORE} updates, from {path}" in caplog.text
    assert {id(state["sum"]) for state in optimizer.state.values()} == memory
    assert {float(state["step"]) for state in optimizer.state.values()} == {N_BEFORE}


def test_files_that_are_no_state_of_the_model(tmp_path):
    model = torch.nn.Linear(5, 300)
    optimizer = torch.optim.Adagrad(model.parameters(), 0.2, initial_accumulator_value=1.0)
    path = tmp_path / "state.hdf5"

    def fails(message, optimizer=optimizer):
        with pytest.raises(ConfigurationError, match=f"adagrad_state: {message}"):
            start(model, optimizer, path)
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


def test_initial_validation(data, tmp_path, caplog):
    """A recovered run doesn't validate again."""
    changes = {"trainer.callbacks": ["write_losses", "initial_validation"]}
    config = write_config(tmp_path, data, changes)
    train_here(config, tmp_path / "run", kill_at=8)
    first = metrics(tmp_path / "run", "metrics_initial")
    perplexity = first["initial_validation_perplexity"]
    assert f"Before training: initial_validation_perplexity {perplexity:.4f}" in caplog.text
    # As if all words were equally likely
    assert perplexity == pytest.approx(63, rel=0.1)
    (tmp_path / "run" / "metrics_initial.json").unlink()
    results = train_here(config, tmp_path / "run")
    assert {key: results[key] for key in first} == first
    assert not (tmp_path / "run" / "metrics_initial.json").exists()
    config = write_config(tmp_path, data, {**changes, "validation_data_path": None})
    with pytest.raises(ConfigurationError, match="initial_validation needs validation_data_path"):
        train_here(config, tmp_path / "other")
