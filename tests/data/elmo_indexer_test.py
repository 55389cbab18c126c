import copy
import importlib
import pickle
import random

import pytest
import torch
from allennlp.common import Params
from allennlp.data import Batch, Instance, Token, TokenIndexer, Vocabulary
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import elmo_indexer

from allennlp_elmo_plugin.data.elmo_indexer import ELMoTokenCharactersIndexer

random_ = random.Random(0)
WORDS = ["<S>", "</S>", "", "東京", "[X]", "é" * 30, "\ud800a", "x" * 47, "x" * 48, "x" * 49]
WORDS += ["".join(chr(random_.randrange(0x110000)) for _ in range(n)) for n in range(60)]
SETTINGS = [{}, {"tokens_to_add": {"[X]": 5, "<S>": 6}}, {"token_min_padding_length": 9}]


def field_of(words, indexer):
    return TextField([Token(word) for word in words], {"elmo": indexer})


def tensors_of(fields):
    batch = Batch([Instance({"text": field}) for field in fields])
    batch.index_instances(Vocabulary())
    return batch.as_tensor_dict()["text"]["elmo"]


@pytest.fixture(params=SETTINGS, ids=str)
def both(request):
    """Ours and the original."""
    return (
        ELMoTokenCharactersIndexer(**request.param),
        elmo_indexer.ELMoTokenCharactersIndexer(**request.param),
    )


def test_registered():
    importlib.import_module("allennlp.data.token_indexers.elmo_indexer")
    indexer = TokenIndexer.from_params(Params({"type": "elmo_characters"}))
    assert type(indexer) is ELMoTokenCharactersIndexer


@pytest.mark.parametrize("lengths", [[5, 1, 12, 0, 40], [[3, 1], [7], [0, 2, 4]]])
def test_tensors_equal_allennlp(both, lengths):
    """Of fields, and of lists of fields."""
    state = random_.getstate()
    made = []
    for indexer in both:
        random_.setstate(state)
        fields = []
        for each in lengths:
            some = each if isinstance(each, list) else [each]
            of_words = [field_of(random_.choices(WORDS, k=n), indexer) for n in some]
            fields.append(ListField(of_words) if isinstance(each, list) else of_words[0])
        made.append(tensors_of(fields))
    assert made[0].keys() == made[1].keys() == {"elmo_tokens"}
    ours, theirs = (each["elmo_tokens"] for each in made)
    assert ours.dtype == theirs.dtype == torch.long
    assert torch.equal(ours, theirs)


def test_fields_without_any_token():
    # The original makes a tensor with two dimensions, which no ELMo can read.
    field = field_of([], ELMoTokenCharactersIndexer())
    assert tensors_of([field, field])["elmo_tokens"].shape == (2, 0, 50)


def test_indices_equal_allennlp(both):
    ours, theirs = both
    tokens = [Token(word) for word in WORDS]
    for _ in range(2):  # unknown, then known
        made = ours.tokens_to_indices(tokens, Vocabulary())
        expected = theirs.tokens_to_indices(tokens, Vocabulary())
        assert made == expected and expected == made
        assert ours.get_padding_lengths(made) == theirs.get_padding_lengths(expected)
        assert list(made["elmo_tokens"]) == expected["elmo_tokens"]
        # Whose indices a tensor is made of makes no difference, also when it is too short.
        for length in (3, 100):
            lengths = {"elmo_tokens": length}
            padded = [ours.as_padded_tensor_dict(each, lengths) for each in (made, expected)]
            padded.append(theirs.as_padded_tensor_dict(expected, lengths))
            assert all(torch.equal(p["elmo_tokens"], padded[2]["elmo_tokens"]) for p in padded)
    assert ours.get_empty_token_list() == theirs.get_empty_token_list()


def test_fields_and_indexers_compare_and_copy():
    field, same, other = (
        field_of(words, ELMoTokenCharactersIndexer()) for words in (["a"], ["a"], ["b"])
    )
    for item in (field, same, other):
        item.index(Vocabulary())
    assert field == same == field.duplicate() == pickle.loads(pickle.dumps(field))
    assert field._indexed_tokens != other._indexed_tokens
    indexer = ELMoTokenCharactersIndexer()
    assert indexer == copy.deepcopy(indexer) == ELMoTokenCharactersIndexer()
    for settings in ({"tokens_to_add": {"a": 1}}, {"token_min_padding_length": 1}):
        assert indexer != ELMoTokenCharactersIndexer(**settings)


def test_ids_of_a_namespace():
    """The words as they are, for vectors that were computed for a vocabulary."""
    indexer = ELMoTokenCharactersIndexer(namespace_to_cache="words")
    field = field_of(["a", "b", "a"], indexer)
    vocab = Vocabulary.from_instances([Instance({"text": field})], min_count={"words": 2})
    batch = Batch([Instance({"text": each}) for each in (field, field_of(["b"], indexer))])
    batch.index_instances(vocab)
    ids = batch.as_tensor_dict()["text"]["elmo"]["word_inputs"]
    known = vocab.get_token_index("a", "words")
    assert known > 0 and ids.dtype == torch.long
    assert ids.tolist() == [[known, -1, known], [-1, 0, 0]]
    assert indexer.get_empty_token_list() == {"elmo_tokens": [], "word_inputs": []}
