import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.bilm.characters import CharacterTable, words_to_character_ids
from allennlp_elmo_plugin.data.fields import CharacterIdsField, VocabularyIdsField, WindowField


@pytest.fixture
def vocab():
    words = ["<S>", "</S>", "<UNK>", "a", "b"]
    return Vocabulary(non_padded_namespaces=["lm_tokens"], tokens_to_add={"lm_tokens": words})


def padded_tensor(field, **padding_lengths):
    return field.as_tensor({**field.get_padding_lengths(), **padding_lengths})


class TestCharacterIdsField:
    def test_tensor(self):
        field = CharacterIdsField(["<S>", "ab", "東京"], CharacterTable())
        expected = torch.tensor(words_to_character_ids(field.words).tolist())
        assert field.get_padding_lengths() == {"num_words": 3}
        for tensor in (padded_tensor(field), padded_tensor(field, num_words=5)):
            assert tensor.dtype == torch.long
            assert torch.equal(tensor[:3], expected)
            assert not tensor[3:].any()
        assert padded_tensor(field, num_words=5).shape == (5, 50)

    def test_least_length(self):
        table = CharacterTable(max_characters=20)
        assert padded_tensor(CharacterIdsField([], table, num_steps=4)).shape == (4, 20)
        assert padded_tensor(CharacterIdsField(["a"], table, num_steps=4)).shape == (4, 20)

    def test_equality(self):
        table = CharacterTable()
        assert CharacterIdsField(["a"], table) == CharacterIdsField(["a"], table)
        assert CharacterIdsField(["a"], table) != CharacterIdsField(["b"], table)


class TestVocabularyIdsField:
    def test_tensor(self, vocab):
        field = VocabularyIdsField(["a", "zebra", "</S>"], "lm_tokens", padding_value=-100)
        field.index(vocab)
        assert padded_tensor(field).tolist() == [3, 2, 1]
        tensor = padded_tensor(field, num_words=5)
        assert tensor.tolist() == [3, 2, 1, -100, -100] and tensor.dtype == torch.long

    def test_least_length(self, vocab):
        field = VocabularyIdsField([], "lm_tokens", num_steps=2)
        field.index(vocab)
        assert padded_tensor(field).tolist() == [0, 0]

    def test_without_index(self):
        with pytest.raises(ConfigurationError, match="index"):
            padded_tensor(VocabularyIdsField(["a"], "lm_tokens"))

    def test_vocabulary_without_the_unknown_word(self):
        with pytest.raises(ConfigurationError, match="<UNK>.*lm_tokens.*elmo-vocab"):
            VocabularyIdsField(["a"], "lm_tokens").index(Vocabulary())

    def test_equality(self, vocab):
        field, other = (VocabularyIdsField(["a"], "lm_tokens") for _ in range(2))
        assert field == other
        field.index(vocab)
        assert field != other and field != VocabularyIdsField(["b"], "lm_tokens")


def test_window_field():
    field = WindowField(3, 1, 2)
    assert padded_tensor(field).tolist() == [3, 1, 2]
    assert field == WindowField(3, 1, 2) and field != WindowField(3, 0, 2)
