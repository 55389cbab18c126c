import re

import pytest
import torch

from allennlp_elmo_plugin.bilm import character_encoder as module
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import CharacterTable
from allennlp_elmo_plugin.bilm.kernels import ngrams
from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn
from allennlp_elmo_plugin.bilm.options import CharCnnOptions
from tests.support.pretend_gpu import check_on_gpu

WORDS = ["the", "the", "a", "x" * 60, "naïve", "<S>", "</S>", "東京", "bb", "b" * 47, "ab" * 23]
IDS = torch.from_numpy(CharacterTable().lookup(WORDS)).long()  # (n_words, 50)


def encode_directly(encoder, ids):
    """The definition: convolutions of embedded characters, all positions, every word."""
    embedded = encoder._char_embedding_weights[ids].transpose(1, 2)
    maxima = torch.cat([conv(embedded).amax(2) for conv in encoder.convolutions], 1)
    vectors = getattr(maxima, encoder.options.activation)()
    for layer in encoder.highway_layers:
        new, gate = layer(vectors).chunk(2, 1)
        vectors = gate.sigmoid() * vectors + (1 - gate.sigmoid()) * new.relu()
    return vectors if encoder._projection is None else encoder._projection(vectors)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", [((1, 4), (3, 5)), ((2, 3), (9, 4)), ((50, 3),), ((2, 5),)])
@pytest.mark.parametrize("n_highway", [0, 2])
@pytest.mark.parametrize("trained", [".*", "char_emb", "0.weight", "conv_.*bias", "high|proj"])
def test_values_and_gradient(activation, filters, n_highway, trained, monkeypatch):
    """For some parameters, over two calls, the second of which computes its gradient twice."""
    monkeypatch.setattr(ngrams, "CHUNK", 500)  # several chunks
    monkeypatch.setattr(ngrams, "FEW_WORDS", 4)  # several lengths
    torch.manual_seed(0)
    encoder = CharacterEncoder(CharCnnOptions(filters, activation, 3, n_highway), 5).double()
    assert (encoder._projection is None) == (filters == ((2, 5),))
    for name, parameter in encoder.named_parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
        parameter.requires_grad_(re.search(trained, name) is not None)
    parameters = [weight for weight in encoder.parameters() if weight.requires_grad]
    ids = torch.randint(0, 262, IDS.shape)
    ids[3:6] = torch.stack([ids[7], torch.zeros(50), torch.full((50,), 261)])
    expected = list(map(torch.zeros_like, parameters))
    for batch, times in ((torch.cat([IDS, ids]), 1), (IDS[:3], 2)):
        vectors = encoder(batch)
        directly = encode_directly(encoder, batch)
        torch.testing.assert_close(vectors, directly)
        with torch.inference_mode():
            torch.testing.assert_close(encoder(batch).clone(), directly.detach())
        for retain_graph in (True, False)[-times:] if parameters else ():
            vectors.square().sum().backward(retain_graph=retain_graph)
            grads = torch.autograd.grad(directly.square().sum(), parameters, retain_graph=True)
            expected = [sum(pair) for pair in zip(expected, grads)]
    torch.testing.assert_close([weight.grad for weight in parameters], expected)


def counted(monkeypatch, max_cached_words=0):
    """An encoder, and a list of how many words it encoded at a time."""
    encoder = CharacterEncoder(CharCnnOptions(((1, 4), (2, 3)), "relu", 3, 1), 5)
    encoder.max_cached_words = max_cached_words
    encode, counts = ngrams.max_over_ngrams, []

    def encode_and_count(ids, *others):
        counts.append(len(ids))
        return encode(ids, *others)

    monkeypatch.setattr(ngrams, "max_over_ngrams", encode_and_count)
    return encoder, counts


def test_equal_words_are_computed_once(monkeypatch):
    encoder, counts = counted(monkeypatch)
    expected = encode_directly(encoder, IDS)
    # Of any type and layout
    for ids in (IDS, IDS.short(), IDS.t().contiguous().t(), torch.cat([IDS, IDS], 1)[:, :50]):
        torch.testing.assert_close(encoder(ids), expected)
        with torch.no_grad():
            torch.testing.assert_close(encoder(ids), expected.detach())
    torch.testing.assert_close(encoder.embed_words(WORDS), expected)
    assert counts == [len(set(WORDS))] * 9 and encoder(IDS[:0]).shape == (0, 5)


def test_some_words_are_kept_by_ids_and_spellings_alike(monkeypatch):
    encoder, counts = counted(monkeypatch, max_cached_words=10)
    with torch.no_grad():
        expected = encoder(IDS)  # ten words
        assert torch.equal(encoder.embed_words(WORDS), expected)
        assert torch.equal(encoder(IDS.flip(0)), expected.flip(0))
        encoder.embed_words(["new"])  # one too many
        assert torch.equal(encoder.embed_words(["a", "new"])[0], expected[2])
        assert counts == [10, 1, 1]
        monkeypatch.setattr(module, "WORDS_AT_ONCE", 3)
        encoder.keep_words(["a", "b", "c", "d", "e"])
        assert encoder.word_cache.n_kept == 6  # with "new"
        encoder.embed_words(["x"])
        encoder.word_cache.forget()
        encoder.embed_words(["d", "x"])
        assert counts[3:] == [3, 1, 1, 1]
        encoder.word_cache.forget(1)
        encoder.embed_words(["d"])
        encoder.precision = "bfloat16"
        encoder.embed_words(["a"])
        assert counts[7:] == [1, 1]
    assert encoder.embed_words(["a"]).requires_grad


def test_a_gpu_computes_the_same():
    def run(device):
        torch.manual_seed(0)
        encoder = CharacterEncoder(CharCnnOptions(((1, 4), (3, 5)), "relu", 3, 1), 5).to(device)
        vectors = encoder(IDS.to(device))
        vectors.square().sum().backward()
        with torch.no_grad():
            return [vectors, encoder.embed_words(WORDS), *(p.grad for p in encoder.parameters())]

    check_on_gpu(run)


def test_start_is_bilm_tfs():
    encoder = CharacterEncoder(CharCnnOptions(((1, 400), (2, 600)), "tanh", 16, 1), 10)
    assert (encoder._char_embedding_weights[0] == 0).all()
    assert 0.9 < encoder._char_embedding_weights.abs().max() <= 1
    for width, convolution in enumerate(encoder.convolutions, 1):
        assert convolution.weight.std().item() == pytest.approx((width * 16) ** -0.5, rel=0.05)
        assert not convolution.bias.any()
    (layer,) = encoder.highway_layers
    assert layer.weight.std().item() == pytest.approx(1000**-0.5, rel=0.01)
    assert layer.bias.tolist() == [0.0] * 1000 + [2.0] * 1000
    assert encoder._projection.weight.std().item() == pytest.approx(1000**-0.5, rel=0.05)
    assert not encoder._projection.bias.any()
    weight = CharacterEncoder(CharCnnOptions(((3, 600),), "relu", 16), 10).convolutions[0].weight
    assert 0.049 < weight.abs().max() <= 0.05


# A row's product doesn't depend on the other rows in oneDNN; torch.mm doesn't promise that.
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_words_vector_is_the_same_in_any_company(precision):
    if not has_onednn(getattr(torch, precision)):
        pytest.skip("no oneDNN")
    encoder = CharacterEncoder(CharCnnOptions(((1, 32), (3, 256)), "relu", 16, n_highway=2), 128)
    encoder.precision = precision
    words = [f"word{i}" * (1 + i % 7) for i in range(150)]
    with torch.no_grad():
        expected = encoder.embed_words(words)
        for rows in ([3], [149, 3], list(range(40, 75)), list(range(150))[::-1]):
            assert torch.equal(encoder.embed_words([words[i] for i in rows]), expected[rows])
