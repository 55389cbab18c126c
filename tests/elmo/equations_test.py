"""The language model and `Elmo` against the equations of the paper (`tests.support.naive_bilm`)."""

import json
from pathlib import Path

import pytest
import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions, Elmo, batch_to_ids
from allennlp_elmo_plugin.bilm.characters import sentences_to_character_ids
from allennlp_elmo_plugin.pretrained.weight_file import read_weights
from tests.support.bilm_tf import variable_name
from tests.support.elmo_pairs import SIZES
from tests.support.naive_bilm import NaiveBiLm, elmo
from tests.support.testing import read_arrays, write_random_elmo

SENTENCES = [["Alice", "saw", "the", "naïve", "ﬁsh", "."], ["long" * 20], ["</S>", "<S>", "Alice"]]


@pytest.fixture(params=SIZES)
def files(request, tmp_path):
    return write_random_elmo(tmp_path, **SIZES[request.param])


def equations(files, sentences):
    """The layers of each sentence, from zero states: h_0 to h_L, (tokens, 2 * D) each."""
    options = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    arrays = {variable_name(name): values for name, values in read_arrays(files[1]).items()}
    naive = NaiveBiLm(options, arrays)
    for sentence in sentences:
        ids = torch.from_numpy(sentences_to_character_ids([sentence])) - 1  # bilm-tf's
        forward, _ = naive.layers("forward", ids)
        backward, _ = naive.layers("backward", ids.flip(1))
        yield [torch.cat([f, b.flip(0)], 2)[:, 0].float() for f, b in zip(forward, backward)]


def test_language_model(files):
    bilm = BiLm(BiLmOptions.from_file(files[0])).eval()
    read_weights(files[1], bilm)
    with torch.no_grad():
        output = bilm.run_words(SENTENCES)
    layers = [output.unpack(layer) for layer in range(output.n_layers)]
    for row, expected in enumerate(equations(files, SENTENCES)):
        actual = [layer[row, : len(SENTENCES[row])] for layer in layers]
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_elmo(files):
    """The vectors of words: a mix of the layers, whose boundaries of the sentence are removed."""
    mixed = Elmo(*files, 1, dropout=0.0, initial_state="zero")
    mix = mixed.scalar_mix_0
    for parameter in mix.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        [vectors] = mixed(batch_to_ids(SENTENCES))["elmo_representations"]
        weights = torch.cat(list(mix.scalar_parameters))
        marked = [["<S>", *sentence, "</S>"] for sentence in SENTENCES]
        for row, layers in zip(vectors, equations(files, marked)):
            expected = elmo(layers, weights, mix.gamma)[1:-1]
            torch.testing.assert_close(row[: len(expected)], expected, atol=1e-5, rtol=1e-5)
