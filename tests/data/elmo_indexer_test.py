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


def random_field(indexer, n_tokens):
    return TextField([Token(random_.choice(WORDS)) for _ in range(n_tokens)], {"elmo": indexer})


def with_indexer(field, indexer):
    if isinstance(field, ListField):
        return ListField([with_indexer(item, indexer) for item in field.field_list])
    return TextField(field.tokens, {"elmo": indexer})


def tensors_of(fields):
    batch = Batch([Instance({"text": field}) for field in fields])
    batch.index_instances(Vocabulary())
    return batch.as_tensor_dict()["text"]


@pytest.fixture(params=SETTINGS, ids=str)
def both(request):
    """Ours and the original."""
    return (
        ELMoTokenCharactersIndexer(**request.param),
        elmo_indexer.ELMoTokenCharactersIndexer(**request.param),
    )


def assert_equal(fields, both):
    ours, theirs = (tensors_of([with_indexer(f, indexer) for f in fields]) for indexer in both)
    assert ours["elmo"].keys() == theirs["elmo"].keys() == {"elmo_tokens"}
    ours, theirs = ours["elmo"]["elmo_tokens"], theirs["elmo"]["elmo_tokens"]
    assert ours.dtype == theirs.dtype == torch.long
    assert torch.equal(ours, theirs)
    return ours


def test_registered():
    importlib.import_module("allennlp.data.token_indexers.elmo_indexer")
    indexer = TokenIndexer.from_params(Params({"type": "elmo_characters"}))
    assert type(indexer) is ELMoTokenCharactersIndexer
    assert TokenIndexer.by_name("elmo_characters") is ELMoTokenCharactersIndexer


def test_tensors_equal_allennlp(both):
    tensor = assert_equal([random_field(None, n) for n in (5, 1, 12, 0, 40)], both)
    assert tensor.shape == (5, 40, 50)


def test_fields_without_any_token():
    # The original makes a tensor with two dimensions, which no ELMo can read.
    field = random_field(ELMoTokenCharactersIndexer(), 0)
    assert tensors_of([field, field])["elmo"]["elmo_tokens"].shape == (2, 0, 50)


def test_lists_of_fields_equal_allennlp(both):
    fields = [
        ListField([random_field(None, n) for n in lengths]) for lengths in ([3, 1], [7], [0, 2, 4])
    ]
    assert assert_equal(fields, both).shape[:2] == (3, 3)


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
            padded = [
                indexer.as_padded_tensor_dict(indices, {"elmo_tokens": length})["elmo_tokens"]
                for indexer in both
                for indices in (made, expected)
                if not (indexer is theirs and indices is made)
            ]
            assert all(torch.equal(tensor, padded[0]) for tensor in padded)
    assert ours.get_empty_token_list() == theirs.get_empty_token_list()


def test_fields_compare_and_copy():
    field, same = (
        with_indexer(TextField([Token("a")]), ELMoTokenCharactersIndexer()) for _ in "ab"
    )
    for item in (field, same):
        item.index(Vocabulary())
    assert field == same
    assert field.duplicate() == field
    assert pickle.loads(pickle.dumps(field)) == field


def test_equality():
    indexer = ELMoTokenCharactersIndexer()
    indexer.tokens_to_indices([Token("a")], Vocabulary())
    assert indexer == ELMoTokenCharactersIndexer() == copy.deepcopy(indexer)
    assert indexer != ELMoTokenCharactersIndexer(tokens_to_add={"a": 1})
    assert indexer != ELMoTokenCharactersIndexer(token_min_padding_length=1)
    assert indexer != ELMoTokenCharactersIndexer(namespace="other")


def test_ids_of_a_namespace():
    """The words as they are, for vectors that were computed for a vocabulary."""
    indexer = ELMoTokenCharactersIndexer(namespace_to_cache="words")
    field = TextField([Token(word) for word in ("a", "b", "a")], {"elmo": indexer})
    vocab = Vocabulary.from_instances([Instance({"text": field})], min_count={"words": 2})
    batch = Batch([Instance({"text": with_indexer(field, indexer)})])
    batch.index_instances(vocab)
    ids = batch.as_tensor_dict()["text"]["elmo"]["word_inputs"]
    known = vocab.get_token_index("a", "words")
    assert known > 0 and ids.tolist() == [[known, -1, known]] and ids.dtype == torch.long
    assert indexer.get_empty_token_list() == {"elmo_tokens": [], "word_inputs": []}


def test_a_character_that_is_none():
    with pytest.raises(ValueError, match="tokens_to_add gives 'a' the character 261"):
        ELMoTokenCharactersIndexer(tokens_to_add={"a": 261})
