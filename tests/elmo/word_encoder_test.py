"""Models that read whole words, against the language model that is trained."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.__main__ import main
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.commands.elmo_export_test import save_run
from tests.support.bilm_tf import OPTIONS, load_run

SENTENCES = [["the", "neverseen", "cat"], ["the"], ["cat", "the", "the", '"', "the"]]


@pytest.fixture(params=["train_tokens", "tied"])
def folder(request, tmp_path):
    """The folder of a run of bilm-tf, and one of a model with a single table of words."""
    (tmp_path / "run").mkdir()
    run = OPTIONS["tied"], None
    save_run(tmp_path / "run", *(run if request.param == "tied" else load_run(request.param)))
    return tmp_path


def expected(name):
    """The layers of each sentence, from zero states, by the ids of its words."""
    model = read_pretrained(str(name))
    ids = {word: index for index, word in enumerate(model.words)}
    for sentence in SENTENCES:
        rows = [ids.get(word, ids["<UNK>"]) for word in ("<S>", *sentence, "</S>")]
        with torch.no_grad():
            output = model.bilm.eval()(torch.tensor([rows]), carried=CarriedState())
        layers = [output.unpack(layer, strip=1)[0] for layer in range(output.n_layers)]
        yield torch.stack(layers).numpy()


@pytest.mark.parametrize("is_exported", [False, True])
def test_layers_are_those_of_the_trained_model(is_exported, folder):
    name = folder / "run"
    if is_exported:
        name = folder / "elmo"
        export(str(folder / "run"), name)
    arrays = [*expected(name)]
    embedder = ElmoEmbedder(name, initial_state="zero")
    embedder.save(folder / "saved")
    for each in (embedder, ElmoEmbedder(folder / "saved", initial_state="zero")):
        for layers, array in zip(each.embed_batch(SENTENCES), arrays, strict=True):
            np.testing.assert_allclose(layers, array, atol=1e-5)
    elmo = Elmo(name, dropout=0.0, initial_state="zero", scalar_mix_parameters=[-9e9, 1, -9e9])
    for output in (elmo(batch_to_ids(SENTENCES)), elmo.embed_sentences(SENTENCES)):
        for row, array in zip(output["elmo_representations"][0], arrays):
            np.testing.assert_allclose(row[: array.shape[1]].detach(), array[1], atol=1e-5)


def test_the_table_is_trained(folder):
    elmo = Elmo(folder / "run", requires_grad=True, dropout=0.0)
    loss = elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].square().sum()
    loss.backward()
    table = elmo._elmo_lstm.token_layer.weight
    assert table.grad.any(1).sum() == 6  # <S>, </S>, <UNK>, the, cat and "


def test_command(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("text").write_text("\n".join(map(" ".join, SENTENCES)), encoding="utf-8")
    main(["elmo", "text", "layers.hdf5", "--all", "--model", "run", "--initial-state", "zero"])
    with h5py.File("layers.hdf5") as file:
        for number, array in enumerate(expected("run")):
            np.testing.assert_allclose(file[str(number)], array, atol=1e-5)
