"""Runs of bilm-tf itself (`tests/fixtures/reference`), which training has to reproduce."""

import json
import re
from pathlib import Path

import numpy as np
import torch

from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file, write_vocabulary_folder

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"
WORDS = read_vocabulary_file(REFERENCE / "data" / "vocab.txt")  # of the runs

LSTM = {"dim": 7, "projection_dim": 5, "n_layers": 2, "cell_clip": 3, "proj_clip": 3}
LSTM["use_skip_connections"] = True
CHAR_CNN = {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1}
OPTIONS = {
    "characters": {"char_cnn": CHAR_CNN, "lstm": LSTM},
    "tokens": {"lstm": LSTM},
    "tied": {"lstm": LSTM, "share_embedding_softmax": True},
    "forward only": {"char_cnn": CHAR_CNN, "lstm": LSTM, "bidirectional": False},
}
"""Small language models with the full softmax."""
for _options in OPTIONS.values():
    _options["sample_softmax"] = False


def load_run(name):
    """The options and the arrays of a run."""
    arrays = dict(np.load(REFERENCE / f"{name}.npz"))
    return json.loads(str(arrays["meta/options"])), arrays


def read_vocabulary(directory):
    """The runs' vocabulary for AllenNLP, by way of a folder that is written to `directory`."""
    from allennlp.data import Vocabulary

    write_vocabulary_folder(directory, WORDS)
    return Vocabulary.from_files(str(directory))


def variable_name(dataset):
    """TensorFlow's name of a dataset of weights.hdf5."""
    cell = r"rnn/multi_rnn_cell/cell_\1/lstm_cell"
    dataset = re.sub(r"RNN/MultiRNNCell/Cell(\d)/LSTMCell", cell, dataset)
    kinds = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    return "lm/" + re.sub(r"(?<=lstm_cell/)\w+", lambda match: kinds[match[0]], dataset)


def set_variables(model, arrays, prefix):
    """Gives the model the variables `<prefix>/lm/...`."""
    for dataset in datasets(model.options):
        values = torch.from_numpy(arrays[f"{prefix}/{variable_name(dataset.name)}"])
        dataset.set(model.bilm.state_dict(), values)
    with torch.no_grad():
        if f"{prefix}/lm/softmax/W" in arrays:
            model.softmax.weight.copy_(torch.from_numpy(arrays[f"{prefix}/lm/softmax/W"]))
        model.softmax.bias.copy_(torch.from_numpy(arrays[f"{prefix}/lm/softmax/b"]))


def variables(model):
    """The model's variables by TensorFlow's names."""
    for dataset in datasets(model.options):
        yield variable_name(dataset.name), dataset.get(model.bilm.state_dict()).numpy()
    yield "lm/softmax/W", model.softmax.weight.detach().numpy()
    yield "lm/softmax/b", model.softmax.bias.detach().numpy()
