"""`ElmoTokenEmbedder` against AllenNLP's, and its additional arguments."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.fields import TextField
from allennlp.modules.token_embedders import TokenEmbedder
from allennlp.nn import util

from allennlp_elmo_plugin.plugin.components.elmo_indexer import ELMoTokenCharactersIndexer
from allennlp_elmo_plugin.plugin.components.elmo_token_embedder import ElmoTokenEmbedder
from tests.support.elmo_pairs import Pair, assert_close, assert_same_gradients
from tests.support.originals import ElmoTokenEmbedder as Original
from tests.support.originals import elmo as core_elmo
from tests.support.testing import write_random_elmo

IDS = core_elmo.batch_to_ids([["Alice", "saw", "ﬁsh"], [], ["x" * 60]])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=11)


@pytest.mark.parametrize(
    "arguments",
    [
        {"projection_dim": 5},
        {"do_layer_norm": True, "requires_grad": True, "projection_dim": 3},
        {"scalar_mix_parameters": [0.5, -1.0, 2.0], "projection_dim": 0},
    ],
    ids=str,
)
def test_equals_the_original(files, arguments):
    pair = Pair(*(cls(*files, dropout=0, **arguments) for cls in (ElmoTokenEmbedder, Original)))
    pair.original.load_state_dict(pair.ours.state_dict(), strict=True)
    assert pair.ours.get_output_dim() == pair.original.get_output_dim()
    # Twice, as states are carried; then with several sentences in an instance
    for ids in (IDS, IDS, IDS.view(3, 1, 3, 50), IDS.view(1, 3, 1, 3, 50)):
        outputs = [embedder(ids) for embedder in pair]
        assert_close(*outputs)
    if outputs[1].requires_grad:
        for output in outputs:
            output.sum().backward()
    assert_same_gradients(pair)


def from_params(files, vocab=None, **arguments):
    params = {"type": "elmo_token_embedder", "options_file": files[0], "weight_file": files[1]}
    return TokenEmbedder.from_params(Params({**params, **arguments}), vocab=vocab)


def test_several_representations_side_by_side(files):
    settings = {"dropout": 0.0, "initial_state": "zero", "max_cached_words": 1}
    one, two = (from_params(files, num_output_representations=n, **settings) for n in (1, 2))
    assert isinstance(one, ElmoTokenEmbedder)
    dim = one.get_output_dim()
    assert two.get_output_dim() == 2 * dim
    assert two._elmo._elmo_lstm._token_embedder.max_cached_words == 1
    both, expected = two(IDS), one(IDS)
    assert torch.equal(both[..., :dim], expected) and torch.equal(both[..., dim:], expected)
    both[..., dim:].sum().backward()
    first, second = two._elmo._scalar_mixes
    assert first.gamma.grad.item() == 0 != second.gamma.grad.item()
    projected = from_params(files, num_output_representations=2, projection_dim=5, **settings)
    assert projected.get_output_dim() == 5
    linear = torch.nn.functional.linear(both, *projected._projection.parameters())
    assert torch.equal(projected(IDS), linear)
    rounded = from_params(files, precision="int8", **settings)(IDS)
    assert not torch.equal(rounded, expected)


def batch_of(vocab, namespace, *sentences):
    # AllenNLP 0.9's way of naming the words to cache
    indexer = ELMoTokenCharactersIndexer(namespace_to_cache=namespace)
    fields = [TextField([Token(w) for w in s.split()], {"elmo": indexer}) for s in sentences]
    batch = Batch([Instance({"text": field}) for field in fields])
    vocab = vocab or Vocabulary.from_instances(batch)
    batch.index_instances(vocab)
    return vocab, batch.as_tensor_dict()["text"]


def test_words_of_a_namespace_equal_their_characters(files):
    vocab, tensors = batch_of(None, "elmo_words", "Alice saw ﬁsh", "saw")
    settings = {"initial_state": "zero", "dropout": 0.0}
    cached = from_params(files, vocab, namespace_to_cache="elmo_words", **settings)
    plain = from_params(files, vocab, **settings)
    _, characters = batch_of(vocab, None, "Alice saw ﬁsh", "saw")
    # Cached vectors don't depend on the characters.
    no_characters = {**tensors["elmo"], "elmo_tokens": torch.zeros(2, 3, 50).long()}
    for inputs in (tensors["elmo"], no_characters):
        assert_close(cached(**inputs), plain(**characters["elmo"]))
    # Batches with unknown words, or without word ids, are computed from characters.
    _, other = batch_of(vocab, "elmo_words", "Alice met Bob", "saw")
    assert other["elmo"]["word_inputs"].tolist()[0][1:] == [-1, -1]
    assert util.get_text_field_mask(other).tolist() == [[True] * 3, [True, False, False]]
    _, characters = batch_of(vocab, None, "Alice met Bob", "saw")
    for batch in (other, characters):
        assert_close(cached(**batch["elmo"]), plain(**characters["elmo"]))


@pytest.mark.parametrize("namespace", ["nothing", "some_tags"])
def test_a_namespace_without_words(files, namespace):
    vocab = Vocabulary()
    vocab.add_tokens_to_namespace(["N", "V"], "some_tags")
    with pytest.raises(ConfigurationError, match=f"namespace_to_cache is '{namespace}'"):
        from_params(files, vocab, namespace_to_cache=namespace)
    with pytest.raises(ConfigurationError, match="no vocabulary"):
        ElmoTokenEmbedder(*files, namespace_to_cache=namespace)
    with pytest.raises(ConfigurationError, match="not both"):
        from_params(files, vocab, namespace_to_cache="tokens", vocab_to_cache=["", "a"])
