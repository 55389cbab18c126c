"""The callbacks, and the file with the state of Adagrad that one of them reads."""

import copy
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.models import load_archive
from allennlp.training import gradient_descent_trainer
from allennlp.training.optimizers import Optimizer

from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.callbacks import AdagradStateCallback
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables
from tests.support.training_runs import Killed, metrics, train_here, write_config

ADAGRAD = {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0, "eps": 0.0}
N_BEFORE, N_AFTER = 30, 10


@pytest.fixture
def imported(tmp_path):
    """bilm-tf's checkpoint after 30 steps, imported."""
    folder = tmp_path / "imported"
    import_model(REFERENCE / "checkpoint", folder, REFERENCE / "data" / "vocab.txt")
    return folder


@pytest.fixture
def text(tmp_path):
    """The text of the runs, twice."""
    path = tmp_path / "twice.txt"
    path.write_text((REFERENCE / "data" / "train.txt").read_text("utf-8") * 2, encoding="utf-8")
    return path


def batches_of(text, vocab):
    loader = TruncatedBpttDataLoader(TruncatedBpttLmReader(batch_size=4, num_steps=5), str(text))
    loader.index_with(vocab)
    return list(loader)


def make_optimizer(model):
    return Optimizer.from_params(
        Params(dict(ADAGRAD)), model_parameters=list(model.named_parameters())
    )


def start(path, model, optimizer, n_epochs=0, n_batches=0):
    trainer = SimpleNamespace(
        model=model,
        optimizer=optimizer,
        _start_after_epochs_completed=n_epochs,
        _start_after_batches_in_epoch_completed=n_batches,
    )
    AdagradStateCallback(str(path.parent), str(path)).on_start(trainer)


def train(model, optimizer, batches):
    model.train()
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        output = model(**batch)
        output["loss"].backward()
        gradient_descent_trainer.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        losses.append(output["loss"].item())
    return losses


@pytest.mark.parametrize("with_state", [True, False])
def test_goes_on_like_a_run_that_never_stopped(imported, text, tmp_path, with_state):
    options, arrays = load_run("train_charcnn")
    vocab = read_vocabulary(tmp_path / "vocabulary")
    batches = batches_of(text, vocab)[: N_BEFORE + N_AFTER]
    assert len(batches) == N_BEFORE + N_AFTER
    whole = BidirectionalLanguageModel(vocab, options=options)
    set_variables(whole, arrays, "init")
    optimizer = make_optimizer(whole)
    train(whole, optimizer, batches[:N_BEFORE])
    # bilm-tf doesn't save the LSTM states.
    carried = copy.deepcopy(whole._carried)
    expected = train(whole, optimizer, batches[N_BEFORE:])

    model = load_archive(imported / "model.tar.gz").model
    model._carried = carried
    optimizer_again = make_optimizer(model)
    if with_state:
        start(imported / "adagrad.hdf5", model, optimizer_again)
    found = train(model, optimizer_again, batches[N_BEFORE:])
    deviation = max(abs(np.subtract(found, expected)))
    if not with_state:
        # The test sees the accumulators.
        assert deviation > 1e-3
        return
    assert deviation < 2e-6
    theirs = dict(whole.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], atol=3e-6, rtol=0, msg=name)
        ours, other = optimizer_again.state[parameter], optimizer.state[theirs[name]]
        torch.testing.assert_close(ours["sum"], other["sum"], atol=1e-5, rtol=1e-5, msg=name)
        assert float(ours["step"]) == float(other["step"]) == N_BEFORE + N_AFTER
        assert ours["sum"].stride() == other["sum"].stride()


def test_in_the_trainer(imported, text, tmp_path):
    """`allennlp train` from an imported archive, whose configuration gives reader and loader."""
    archive = str(imported / "model.tar.gz")
    config = load_archive(archive).config.as_dict(quiet=True)
    config.update(
        model={"type": "from_archive", "archive_file": archive},
        vocabulary={"type": "from_files", "directory": archive},
        train_data_path=str(text),
        trainer={
            "num_epochs": 1,
            "optimizer": dict(ADAGRAD),
            "grad_norm": 10.0,
            "callbacks": [{"type": "adagrad_state", "file": str(imported / "adagrad.hdf5")}],
        },
    )
    trained = train_model(Params(copy.deepcopy(config)), str(tmp_path / "run"))

    model = load_archive(archive).model
    optimizer = make_optimizer(model)
    start(imported / "adagrad.hdf5", model, optimizer)
    train(model, optimizer, batches_of(text, model.vocab))
    expected = dict(model.named_parameters())
    for name, parameter in trained.named_parameters():
        assert torch.equal(parameter, expected[name]), name


@pytest.mark.parametrize("place", [{"n_epochs": 1}, {"n_batches": 1}])
def test_a_recovered_run_keeps_its_own_state(imported, place):
    model = load_archive(imported / "model.tar.gz").model
    optimizer = make_optimizer(model)
    start(imported / "adagrad.hdf5", model, optimizer, **place)
    assert all(bool((state["sum"] == 1.0).all()) for state in optimizer.state.values())


def test_frozen_parameters(imported):
    model = load_archive(imported / "model.tar.gz").model
    parts = [(n, p) for n, p in model.named_parameters() if "lstm" in n]
    optimizer = Optimizer.from_params(Params(dict(ADAGRAD)), model_parameters=parts)
    start(imported / "adagrad.hdf5", model, optimizer)
    assert len(optimizer.state) == len(parts)
    assert all(state["sum"].max() > 1.0 for state in optimizer.state.values())


def test_bad_files(imported, tmp_path):
    """Nothing is read of them."""
    model = load_archive(imported / "model.tar.gz").model
    path = tmp_path / "state.hdf5"
    optimizer = make_optimizer(model)

    def fails(message, optimizer=optimizer):
        with pytest.raises(ConfigurationError, match=message):
            start(path, model, optimizer)
        sums = [state["sum"] for state in optimizer.state.values() if state]
        assert all(bool((values == 1.0).all()) for values in sums)

    fails("adagrad_state: .*state.hdf5")
    path.write_text("text")
    fails("adagrad_state: .*state.hdf5: not an HDF5 file, or one cut off")
    shutil.copy(REFERENCE / "checkpoint" / "weights.hdf5", path)
    fails("not a state of Adagrad")
    shutil.copy(imported / "adagrad.hdf5", path)
    fails("SGD keeps no sums", torch.optim.SGD(model.parameters(), 0.1))
    model.softmax.bias = torch.nn.Parameter(torch.zeros(60))
    message = r"has \(50,\) for the parameter 'softmax.bias' of shape \(60,\)"
    fails(message, make_optimizer(model))
    model.extra = torch.nn.Parameter(torch.zeros(1))
    fails("has nothing for the parameter 'extra'", make_optimizer(model))


def test_initial_validation(data, tmp_path, caplog):
    """Once: a recovered run keeps its metrics."""
    changes = {
        "train_data_path": str(data / "heldout.txt"),
        "trainer.callbacks": ["write_losses", "initial_validation"],
        "trainer.num_epochs": 1,
    }
    config = write_config(tmp_path, data, changes)
    with pytest.raises(Killed):
        train_here(config, tmp_path / "run", kill_at=8)
    first = metrics(tmp_path / "run", "metrics_initial")
    perplexity = first["initial_validation_perplexity"]
    assert perplexity == pytest.approx(63, rel=0.1)  # as if all words were as likely
    assert f"Before training: initial_validation_perplexity {perplexity:.4f}" in caplog.text
    (tmp_path / "run" / "metrics_initial.json").unlink()
    found = train_here(config, tmp_path / "run")
    assert {key: found[key] for key in first} == first
    assert not (tmp_path / "run" / "metrics_initial.json").exists()
    config = write_config(tmp_path, data, {**changes, "validation_data_path": None})
    with pytest.raises(ConfigurationError, match="initial_validation needs validation_data_path"):
        train_here(config, tmp_path / "other")
