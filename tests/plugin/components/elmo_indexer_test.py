import pickle
import random

import pytest
import torch
from allennlp.common import Params
from allennlp.data import Batch, Instance, Token, TokenIndexer, Vocabulary
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import elmo_indexer

from allennlp_elmo_plugin.plugin.components.elmo_indexer import ELMoTokenCharactersIndexer

random_ = random.Random(0)
WORDS = ["<S>", "</S>", "", "東京", "[X]", "é" * 30, "\ud800a", "x" * 47, "x" * 48, "x" * 49]
WORDS += ["".join(chr(random_.randrange(0x110000)) for _ in range(n)) for n in range(60)]


def field_of(words, indexer):
    return TextField([Token(word) for word in words], {"elmo": indexer})


def tensors_of(fields, vocab=None):
    batch = Batch([Instance({"text": field}) for field in fields])
    batch.index_instances(vocab or Vocabulary())
    return batch.as_tensor_dict()["text"]["elmo"]


@pytest.mark.parametrize(
    "settings", [{}, {"tokens_to_add": {"[X]": 5, "<S>": 6}}, {"token_min_padding_length": 9}]
)
def test_fields_and_indices_equal_those_of_allennlp(settings):
    ours = TokenIndexer.from_params(Params({"type": "elmo_characters", **settings}))
    assert type(ours) is ELMoTokenCharactersIndexer
    theirs = elmo_indexer.ELMoTokenCharactersIndexer(**settings)
    texts = [random_.choices(WORDS, k=n) for n in (5, 1, 12, 0, 40)]
    tensors = []
    for indexer in (ours, theirs):
        fields = [field_of(words, indexer) for words in texts]
        lists = [ListField(fields[:2]), ListField(fields[2:3])]
        tensors.append((tensors_of(fields), tensors_of(lists)))
    torch.testing.assert_close(*tensors, rtol=0, atol=0)
    actual, expected = (
        indexer.tokens_to_indices([Token(word) for word in WORDS], Vocabulary())
        for indexer in (ours, theirs)
    )
    assert actual == expected and expected == actual
    assert list(actual["elmo_tokens"]) == expected["elmo_tokens"]
    assert ours.get_padding_lengths(actual) == theirs.get_padding_lengths(expected)
    assert ours.get_empty_token_list() == theirs.get_empty_token_list()
    # Also from AllenNLP's indices, and with a length that is too short
    for length in ({"elmo_tokens": 3}, {"elmo_tokens": 100}):
        for indices in (actual, expected):
            padded = ours.as_padded_tensor_dict(indices, length)["elmo_tokens"]
            wanted = theirs.as_padded_tensor_dict(expected, length)["elmo_tokens"]
            assert torch.equal(padded, wanted)


def test_fields_are_compared_pickled_and_empty():
    fields = [field_of(words, ELMoTokenCharactersIndexer()) for words in (["a"], ["a"], ["b"], [])]
    # AllenNLP's tensor has two dimensions, which ELMo can't read.
    assert tensors_of(fields[3:] * 2)["elmo_tokens"].shape == (2, 0, 50)
    field, same, other = fields[:3]
    tensors_of(fields)
    assert field == same == field.duplicate() == pickle.loads(pickle.dumps(field))
    assert field._indexed_tokens != other._indexed_tokens


def test_ids_of_a_namespace():
    """Ids of whole words, for the cached vectors of a vocabulary."""
    indexer = ELMoTokenCharactersIndexer(namespace_to_cache="words")
    field = field_of(["a", "b", "a"], indexer)
    vocab = Vocabulary.from_instances([Instance({"text": field})], min_count={"words": 2})
    ids = tensors_of([field, field_of(["b"], indexer)], vocab)["word_inputs"]
    known = vocab.get_token_index("a", "words")
    assert known > 0 and ids.dtype == torch.long
    assert ids.tolist() == [[known, -1, known], [-1, 0, 0]]
    assert indexer.get_empty_token_list() == {"elmo_tokens": [], "word_inputs": []}
