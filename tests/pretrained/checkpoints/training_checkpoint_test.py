"""The model of a run that was stopped, by all commands, before and after its first epoch."""

import os
import shutil

import pytest
import torch

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.support.elmo_train_runs import elmo_train, write_config, write_data, write_size
from tests.support.testing import fork

LSTM = {"dim": 12, "projection_dim": 8, "n_layers": 2}
WORDS = {"dataset_reader.max_characters_per_token": None, "model.options": {"lstm": LSTM}}


@pytest.mark.parametrize("changes", [{}, WORDS], ids=["characters", "words"])
def test_a_run_that_was_killed_in_its_first_epoch(changes, tmp_path, capsys):
    data = write_data(tmp_path)
    config = write_config(tmp_path, data, changes)
    text, size = data / "heldout.txt", write_size(config, tmp_path / "size.json")
    arguments = [text, "--validation", text, "--size", size, "--vocab", data / "vocabulary"]
    run, exported = tmp_path / "run", tmp_path / "exported"

    def train():
        elmo_train([*arguments, "-o", run], stop_at=5, stop=lambda: os._exit(3), seconds=0.0)

    assert fork(train) == 3 << 8 and not (run / "weights.hdf5").exists()
    expected = torch.load(run / "checkpoint.pt")["parameters"]
    # As `allennlp train` leaves it
    other = tmp_path / "other"
    shutil.copytree(run / "vocabulary", other / "vocabulary")
    shutil.copy(run / "checkpoint.pt", other)
    shutil.copy(config, other / "config.json")
    for source in (run, run / "checkpoint.pt", other):
        model = read_pretrained(str(source)).modules()
        torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
    export(str(run), exported)
    layers = [ElmoEmbedder(str(f)).embed_sentence(["w1", "w2"]) for f in (run, exported)]
    assert (layers[0] == layers[1]).all()
    main(["elmo-perplexity", str(run), str(text)])
    assert "perplexity" in capsys.readouterr().out

    # After its epochs, the folder has the best model, and the checkpoint the last one.
    elmo_train([*arguments, "-o", run, "--resume"])
    last = torch.load(run / "checkpoint.pt")["parameters"]
    model = read_pretrained(str(run / "checkpoint.pt")).modules()
    torch.testing.assert_close(dict(model.state_dict()), last, rtol=0, atol=0)
    assert not torch.equal(last["softmax.bias"], expected["softmax.bias"])
    shutil.move(run / "checkpoint.pt", exported)
    with pytest.raises(ValueError, match="there is no training.json of its run beside it"):
        read_pretrained(str(exported / "checkpoint.pt"))
