"""`ElmoTokenEmbedder` against AllenNLP's, and what it has more."""

import importlib

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.fields import TextField
from allennlp.modules import TextFieldEmbedder
from allennlp.modules.token_embedders import TokenEmbedder
from allennlp.nn import util

from allennlp_elmo_plugin.data.elmo_indexer import ELMoTokenCharactersIndexer
from allennlp_elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
from tests.support.originals import ElmoTokenEmbedder as Original
from tests.support.originals import elmo as core_elmo
from tests.support.testing import write_random_elmo

IDS = core_elmo.batch_to_ids([["Alice", "saw", "ﬁsh"], [], ["x" * 60]])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=11)


def pair(files, **arguments):
    """Our embedder and AllenNLP's with the same weights everywhere."""
    ours, original = (cls(*files, dropout=0, **arguments) for cls in (ElmoTokenEmbedder, Original))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in original.parameters():
            if arguments.get("scalar_mix_parameters") is None:
                parameter.add_(torch.randn_like(parameter) * 0.01)
    assert set(ours.state_dict()) == set(original.state_dict())
    ours.load_state_dict(original.state_dict(), strict=True)
    original.load_state_dict(ours.state_dict(), strict=True)
    return ours, original


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"projection_dim": 5},
        {"do_layer_norm": True, "requires_grad": True, "projection_dim": 3},
        {"scalar_mix_parameters": [0.5, -1.0, 2.0], "projection_dim": 0},
    ],
    ids=str,
)
def test_equals_the_original(files, arguments):
    ours, original = pair(files, **arguments)
    assert ours.get_output_dim() == original.get_output_dim()
    # Twice, as the state is carried; then several sentences an instance.
    for ids in (IDS, IDS, IDS.view(3, 1, 3, 50), IDS.view(1, 3, 1, 3, 50)):
        actual, expected = ours(ids), original(ids)
        assert actual.shape == expected.shape
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    if not expected.requires_grad:
        assert not actual.requires_grad
        return
    actual.sum().backward()
    expected.sum().backward()
    gradients = {name: p.grad for name, p in original.named_parameters()}
    for name, parameter in ours.named_parameters():
        assert (parameter.grad is None) == (gradients[name] is None), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4)


def test_cached_words(files):
    ours, original = pair(files, vocab_to_cache=["@@PADDING@@", "Alice", "saw"], projection_dim=4)
    words = torch.tensor([[1, 2], [2, 0]])
    ids = core_elmo.batch_to_ids([["Alice", "saw"], ["saw"]])
    for shape in ((2,), (1, 2)):
        inputs = ids.view(*shape, 2, 50), words.view(*shape, 2)
        torch.testing.assert_close(ours(*inputs), original(*inputs), atol=1e-5, rtol=1e-5)


def embedder(files, vocab=None, **arguments):
    params = {"type": "elmo_token_embedder", "options_file": files[0], "weight_file": files[1]}
    return TokenEmbedder.from_params(Params({**params, **arguments}), vocab=vocab)


def test_registered_in_the_place_of_allennlps_class(files):
    # A later import of AllenNLP's module does nothing and raises nothing.
    importlib.import_module("allennlp.modules.token_embedders.elmo_token_embedder")
    assert TokenEmbedder.by_name("elmo_token_embedder") is ElmoTokenEmbedder
    made = embedder(files, projection_dim=7, vocab_to_cache=["a"], scalar_mix_parameters=[1, 2, 3])
    assert isinstance(made, ElmoTokenEmbedder) and made(IDS).shape == (3, 3, 7)


def test_several_representations_side_by_side(files):
    settings = {"dropout": 0.0, "initial_state": "zero", "max_cached_words": 1}
    one, two = (embedder(files, num_output_representations=n, **settings) for n in (1, 2))
    dim = one.get_output_dim()
    assert two.get_output_dim() == 2 * dim
    assert two._elmo._elmo_lstm._token_embedder.max_cached_words == 1
    both, expected = two(IDS), one(IDS)
    assert torch.equal(both[..., :dim], expected) and torch.equal(both[..., dim:], expected)
    both[..., dim:].sum().backward()
    first, second = two._elmo._scalar_mixes
    assert first.gamma.grad.item() == 0 != second.gamma.grad.item()
    projected = embedder(files, num_output_representations=2, projection_dim=5, **settings)
    assert projected.get_output_dim() == 5
    linear = torch.nn.functional.linear(both, *projected._projection.parameters())
    assert torch.equal(projected(IDS), linear)
    rounded = embedder(files, precision="int8", **settings)(IDS)
    assert not torch.equal(rounded, expected)


class TestNamespaceToCache:
    """AllenNLP 0.9's way of naming the words to cache."""

    @staticmethod
    def batch(vocab, namespace, *sentences):
        indexer = ELMoTokenCharactersIndexer(namespace_to_cache=namespace)
        fields = [TextField([Token(w) for w in s.split()], {"elmo": indexer}) for s in sentences]
        batch = Batch([Instance({"text": field}) for field in fields])
        vocab = vocab or Vocabulary.from_instances(batch)
        batch.index_instances(vocab)
        return vocab, batch.as_tensor_dict()["text"]

    @staticmethod
    def embedder(files, vocab, **arguments):
        elmo = {"type": "elmo_token_embedder", "options_file": files[0], "weight_file": files[1]}
        params = {"token_embedders": {"elmo": {**elmo, "initial_state": "zero", **arguments}}}
        return TextFieldEmbedder.from_params(Params(params), vocab=vocab).eval()

    def test_equals_characters(self, files):
        vocab, tensors = self.batch(None, "elmo_words", "Alice saw ﬁsh", "saw")
        assert tensors["elmo"]["word_inputs"].tolist() == [
            [vocab.get_token_index(word, "elmo_words") for word in ("Alice", "saw", "ﬁsh")],
            [vocab.get_token_index("saw", "elmo_words"), 0, 0],
        ]
        cached = self.embedder(files, vocab, namespace_to_cache="elmo_words")
        plain = self.embedder(files, vocab)
        _, characters = self.batch(vocab, None, "Alice saw ﬁsh", "saw")
        expected = plain(characters)
        torch.testing.assert_close(cached(tensors), expected, atol=1e-6, rtol=1e-6)
        # The cache is in use: characters are not looked at.
        no_characters = {"elmo": {**tensors["elmo"], "elmo_tokens": torch.zeros(2, 3, 50).long()}}
        torch.testing.assert_close(cached(no_characters), expected, atol=1e-6, rtol=1e-6)
        # Words that are not in the vocabulary are spelled; so is everything without word ids.
        _, other = self.batch(vocab, "elmo_words", "Alice met Bob", "saw")
        assert other["elmo"]["word_inputs"].tolist()[0][1:] == [-1, -1]
        assert util.get_text_field_mask(other).tolist() == [[True] * 3, [True, False, False]]
        _, other_characters = self.batch(vocab, None, "Alice met Bob", "saw")
        for each in (other, other_characters):
            torch.testing.assert_close(cached(each), plain(other_characters), atol=1e-6, rtol=1e-6)

    @pytest.mark.parametrize("namespace", ["nothing", "some_tags"])
    def test_no_such_words(self, files, namespace):
        vocab = Vocabulary()
        vocab.add_tokens_to_namespace(["N", "V"], "some_tags")
        with pytest.raises(ConfigurationError, match=f"namespace_to_cache is '{namespace}'"):
            self.embedder(files, vocab, namespace_to_cache=namespace)
        with pytest.raises(ConfigurationError, match="no vocabulary"):
            ElmoTokenEmbedder(*files, namespace_to_cache=namespace)
        with pytest.raises(ConfigurationError, match="not both"):
            self.embedder(files, vocab, namespace_to_cache="tokens", vocab_to_cache=["", "a"])
