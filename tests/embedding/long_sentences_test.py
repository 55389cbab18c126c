import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.embedding.long_sentences import embed_in_segments
from tests.support.testing import write_random_elmo

SENTENCES = [list("abcdefghij"), [], ["x"], list("klmnopqrst"), ["long" * 30, "naïve", "y"]]
BOUNDED = [["<S>", *words, "</S>"] for words in SENTENCES]


@pytest.mark.parametrize("width", [1, 2, 3, 12, 100])
@pytest.mark.parametrize("starts_from", ["zero", "state", "fixed state"])
def test_segments_give_the_numbers_of_one_run(tmp_path, width, starts_from):
    options_file, weight_file = write_random_elmo(tmp_path)
    bilm = BiLm(BiLmOptions.from_file(options_file))
    read_weights(weight_file, bilm)
    states = [CarriedState(), CarriedState()]
    with torch.no_grad():
        if starts_from != "zero":
            for state in states:
                bilm.run_words(BOUNDED[::-1], carried=state)
        if starts_from == "fixed state":
            states = list(map(FixedState, states))
        output = bilm.run_words(BOUNDED, carried=states[0])
        expected = torch.stack([output.unpack(layer, 1) for layer in range(output.n_layers)])
        found = embed_in_segments(bilm, SENTENCES, states[1], width, lambda layers: layers)
    for row, (words, array) in enumerate(zip(SENTENCES, found)):
        np.testing.assert_allclose(array, expected[:, row, : len(words)], atol=1e-5)
    # The state after the last words is the same, too.
    torch.testing.assert_close(states[0].states, states[1].states, atol=1e-5, rtol=0)
