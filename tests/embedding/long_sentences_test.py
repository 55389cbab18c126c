import pytest
import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.embedding.long_sentences import run_in_windows
from tests.support.testing import write_random_elmo

SENTENCES = [list("abcdefghij"), [], ["x"], list("klmnopqrst"), ["long" * 30, "naïve", "y"]]


@pytest.mark.parametrize("width", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("starts_from", ["zero", "state"])
def test_windows_give_the_numbers_of_one_run(tmp_path, width, starts_from):
    options_file, weight_file = write_random_elmo(tmp_path)
    bilm = BiLm(BiLmOptions.from_file(options_file))
    read_weights(weight_file, bilm)
    table = CharacterTable()
    ids = torch.from_numpy(sentences_to_character_ids(SENTENCES, table))
    lengths = torch.tensor([len(words) for words in SENTENCES])
    states = [CarriedState(), CarriedState()]
    with torch.no_grad():
        if starts_from == "state":
            for state in states:
                bilm(ids.flip(0), lengths.flip(0), carried=state)
        expected = bilm(ids, lengths, carried=states[0])
        for layer in range(expected.n_layers):
            bilm_state = CarriedState()
            bilm_state.load_state_dict(states[1].state_dict())
            n_seen = 0
            layers = expected.unpack(layer)
            for window in run_in_windows(bilm, SENTENCES, table, bilm_state, width):
                for i, (direction, outputs) in enumerate(window.output.layers.items()):
                    rows, steps = window.positions(direction, lengths)
                    half = layers[rows, steps].chunk(2, -1)[i]
                    torch.testing.assert_close(outputs[layer], half, atol=1e-5, rtol=0)
                    n_seen += len(rows)
            assert n_seen == 2 * lengths.sum()
    # The state after the last words is the same, too.
    for key, state in states[0].state_dict().items():
        for part, other in zip(state, bilm_state.state_dict()[key]):
            torch.testing.assert_close(part, other, atol=1e-5, rtol=0)
