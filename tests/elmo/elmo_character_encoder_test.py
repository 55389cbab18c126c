"""`ElmoCharacterEncoder` against AllenNLP's, and the character ids that ELMo reads."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.elmo.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder, fit_width
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.elmo_pairs import SIZES, TEXT, assert_close, make_pair, random_ids
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo


@pytest.mark.parametrize("size", SIZES)
def test_equals_the_original(files_of, size):
    pair = make_pair(ElmoCharacterEncoder, original._ElmoCharacterEncoder, **files_of(size))
    assert pair.ours._options == pair.original._options
    for ids in (TEXT, random_ids(7, 0, 3, 1, timesteps=8)):
        actual, expected = pair.ours(ids), pair.original(ids)
        # What stands at padding is masked by all users, and differs between AllenNLP's own ways.
        for output in (actual, expected):
            output["token_embedding"] = output["token_embedding"] * expected["mask"].unsqueeze(-1)
        assert_close(actual, expected)


def test_weights_of_the_encoder_alone(tmp_path):
    """As the original reads them. A whole model needs the others, too."""
    options, weights = write_random_elmo(tmp_path)
    expected = ElmoCharacterEncoder(options, weights)(TEXT)["token_embedding"]
    with h5py.File(weights, "r+") as file:
        for name in [name for name in file if name.startswith("RNN")]:
            del file[name]
    for kind in (ElmoCharacterEncoder, original._ElmoCharacterEncoder):
        actual = kind(options, weights)(TEXT)["token_embedding"]
        torch.testing.assert_close(actual, expected)
    with pytest.raises(ValueError, match="the variable 'RNN_0/.* is missing"):
        ElmoEmbedder(options, weights)
    values = json.loads(Path(options).read_text(encoding="utf-8"))
    values["char_cnn"]["n_highway"] = 2**31 - 1
    Path(options).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ValueError, match="the variable 'CNN_high_1/.* is missing"):
        ElmoCharacterEncoder(options, weights)


@pytest.mark.parametrize("width", [10, 60])
def test_models_with_words_of_another_width(tmp_path, width):
    """Words are cut, or not, as in training, whichever way they come."""
    paths = write_random_elmo(tmp_path, filters=[(1, 4), (3, 6), (5, 6)])
    options = json.loads(Path(paths[0]).read_text(encoding="utf-8"))
    options["char_cnn"]["max_characters_per_token"] = width
    Path(paths[0]).write_text(json.dumps(options), encoding="utf-8")
    words = ["a", "seven77", "eight888", "nine99999", "ten1010101", "naïïïïïïïïve", "", "x" * 80]
    sentences = [words[:6], words[6:]]
    ids = torch.from_numpy(sentences_to_character_ids(sentences, CharacterTable(width)))
    elmo = Elmo(*paths, dropout=0.0, initial_state="settled")
    mixed = elmo(ids)["elmo_representations"][0].detach()  # (2, 6, dim)
    for cached_words in (None, words):
        layers = ElmoEmbedder(*paths, vocab_to_cache=cached_words).embed_batch(sentences)
        for array, mix in zip(layers, mixed):
            np.testing.assert_allclose(np.mean(array, axis=0), mix[: array.shape[1]], atol=1e-5)
    of_50_characters = batch_to_ids(sentences)
    if width == 10:
        assert torch.equal(fit_width(of_50_characters, 10), ids)
        assert torch.equal(elmo(of_50_characters)["elmo_representations"][0], mixed)
    else:
        with pytest.raises(ValueError, match=r"shape \(batch_size, timesteps, 60\).*gives 50"):
            elmo(of_50_characters)
        # With 50 characters the two would be one.
        vectors = elmo.embed_sentences([["x" * 52], ["x" * 51 + "y"]])["elmo_representations"][0]
        assert (vectors[0] - vectors[1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "ids, message",
    [
        (torch.ones(2, 3, 49, dtype=torch.long), r"shape \(2, 3, 49\), but .* timesteps, 50\)"),
        (torch.ones(2, 3, 60, dtype=torch.long), r"shape \(2, 3, 60\)"),
        (torch.ones(3, 50, dtype=torch.long), r"shape \(3, 50\)"),
        (torch.ones(50, dtype=torch.long), r"shape \(50,\)"),
        (torch.ones(2, 3, 50), "torch.float32"),
        (torch.full((2, 3, 50), -1), "from -1 to -1"),
        (torch.ones(2, 3, dtype=torch.long), "indices of vocab_to_cache as word_inputs"),
        (torch.full((2, 3, 50), 262), "from 262 to 262, .*0 .*to 261"),
    ],
)
def test_bad_characters(files_of, ids, message):
    for module in (Elmo(**files_of()), ElmoCharacterEncoder(**files_of())):
        with pytest.raises(ValueError, match=message):
            module(ids)


@pytest.mark.parametrize("row, columns", [(0, [0]), (1, [1]), (2, [0, 1]), (2, [1])])
def test_a_gap_before_or_between_words(files_of, row, columns):
    """The words after it would be lost."""
    ids = batch_to_ids([["a", "b"], ["a", "b", "a"], ["b", "a", "b"], []])
    ids[row, columns] = 0
    words = (ids > 0).any(-1).long()
    elmo = Elmo(**files_of(), vocab_to_cache=["", "a"])
    for call in (
        *(lambda: elmo(ids), lambda: elmo(ids.view(2, 2, 3, 50)), lambda: elmo.bilm(ids)),
        *(lambda: elmo.bilm.token_layer(ids), lambda: elmo.bilm(words, words)),
        lambda: elmo(ids, words.view(2, 2, 3)),
    ):
        with pytest.raises(ValueError, match=f"row {row} .*: pad at the end"):
            call()
