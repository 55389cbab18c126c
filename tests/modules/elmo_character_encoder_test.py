"""
`ElmoCharacterEncoder` against AllenNLP's, and the character ids that ELMo reads.
"""

import json
from pathlib import Path
from typing import Tuple

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder, fit_width
from tests.support.elmo_pairs import (
    SIZES,
    TEXT,
    assert_close,
    assert_same_state_dict,
    encoders,
    random_ids,
)
from tests.support.testing import write_random_elmo


class TestCharacterEncoder:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("ids", [TEXT, random_ids(7, 0, 3, 1, timesteps=8)])
    def test_equals_the_original(self, files_of, size, ids):
        pair = encoders(*files_of(size))
        assert pair.ours.get_output_dim() == pair.original.get_output_dim()
        actual, expected = pair.ours(ids), pair.original(ids)
        assert set(actual) == set(expected) == {"mask", "token_embedding"}
        assert torch.equal(actual["mask"], expected["mask"])
        # What stands at padding is masked by all users, and differs between AllenNLP's own ways.
        valid = expected["mask"].unsqueeze(-1)
        assert_close(actual["token_embedding"] * valid, expected["token_embedding"] * valid)

    def test_state_dict(self, files_of):
        pair = encoders(*files_of("wide filters"))
        assert_same_state_dict(pair)


class TestOtherWidthsOfWords:
    """Models that were trained with another `max_characters_per_token` than the indexer's 50."""

    WORDS = ["a", "seven77", "eight888", "nine99999", "ten1010101", "naïïïïïïïïve", "", "x" * 80]

    @pytest.fixture
    def files(self, tmp_path):
        def write(max_characters: int) -> Tuple[str, str]:
            files = write_random_elmo(tmp_path, filters=[(1, 4), (3, 6), (5, 6)])
            options = json.loads(Path(files[0]).read_text(encoding="utf-8"))
            options["char_cnn"]["max_characters_per_token"] = max_characters
            Path(files[0]).write_text(json.dumps(options), encoding="utf-8")
            return files

        return write

    def test_shorter_words_are_cut_as_in_training(self, files):
        sentences = [self.WORDS[:6], self.WORDS[6:]]
        table = CharacterTable(10)
        expected = torch.from_numpy(sentences_to_character_ids(sentences, table))
        found = fit_width(batch_to_ids(sentences), 10)
        assert torch.equal(found, expected)
        paths = files(10)
        wide, narrow = (
            Elmo(*paths, 1, dropout=0.0)(ids)["elmo_representations"][0]
            for ids in (batch_to_ids(sentences), expected)
        )
        assert torch.equal(wide, narrow)
        # The embedder and the cache of words use the model's own width.
        embedder = ElmoEmbedder(*paths, initial_state="carried")
        layers = embedder.embed_batch(sentences)
        mix = np.mean(layers[0], axis=0)
        np.testing.assert_allclose(mix, narrow[0].detach(), atol=1e-5)
        cached = ElmoEmbedder(*paths, vocab_to_cache=self.WORDS[:6])
        np.testing.assert_allclose(
            cached.embed_sentence(sentences[0]),
            ElmoEmbedder(*paths).embed_sentence(sentences[0]),
            atol=1e-5,
        )
        encoder = ElmoCharacterEncoder(*paths)
        assert torch.equal(
            encoder(batch_to_ids(sentences))["token_embedding"],
            encoder(expected)["token_embedding"],
        )

    def test_longer_words_need_ids_of_their_width(self, files):
        paths = files(60)
        with pytest.raises(ValueError, match=r"shape \(batch_size, timesteps, 60\).*gives 50"):
            Elmo(*paths, 1)(batch_to_ids([["word"]]))
        long = "x" * 52
        layers = ElmoEmbedder(*paths, initial_state="carried").embed_batch(
            [[long], [long[:-1] + "y"]]
        )
        # With 50 characters the two would be one.
        assert np.abs(layers[0][0] - layers[1][0]).max() > 1e-3
        ids = torch.from_numpy(sentences_to_character_ids([[long]], CharacterTable(60)))
        found = Elmo(*paths, 1, dropout=0.0)(ids)["elmo_representations"][0]
        np.testing.assert_allclose(np.mean(layers[0], axis=0), found[0].detach(), atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [lambda *files: Elmo(*files, 1), ElmoBiLm, ElmoCharacterEncoder],
    ids=["Elmo", "ElmoBiLm", "ElmoCharacterEncoder"],
)
@pytest.mark.parametrize(
    "ids, message",
    [
        (torch.ones(2, 3, 49, dtype=torch.long), r"shape \(2, 3, 49\), but .* timesteps, 50\)"),
        (torch.ones(2, 3, 60, dtype=torch.long), r"shape \(2, 3, 60\)"),
        (torch.ones(3, 50, dtype=torch.long), r"shape \(3, 50\)"),
        (torch.ones(50, dtype=torch.long), r"shape \(50,\)"),
        (torch.ones(2, 3, 50), "torch.float32"),
        (torch.full((2, 3, 50), -1), "from -1 to -1"),
        (torch.full((2, 3, 50), 262), "from 262 to 262, .*0 .*to 261"),
    ],
)
def test_bad_characters(files_of, make, ids, message):
    module = make(*files_of())
    with pytest.raises(ValueError, match=message):
        module(ids)
