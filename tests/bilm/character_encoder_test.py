import pytest
import torch

from allennlp_elmo_plugin.bilm import character_encoder as module
from allennlp_elmo_plugin.bilm.character_encoder import CharacterEncoder
from allennlp_elmo_plugin.bilm.characters import CharacterTable
from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn
from allennlp_elmo_plugin.bilm.options import CharCnnOptions

WORDS = ["the", "the", "a", "x" * 60, "naïve", "<S>", "</S>", "東京", "bb", "b" * 47, "ab" * 23]
IDS = torch.from_numpy(CharacterTable().lookup(WORDS)).long()  # (n_words, 50)


def encode_directly(encoder, ids):
    """The definition: convolutions of embedded characters, all positions, every word."""
    embedded = encoder._char_embedding_weights[ids].transpose(1, 2)
    maxima = torch.cat([conv(embedded).amax(2) for conv in encoder.convolutions], 1)
    vectors = maxima.relu() if encoder.options.activation == "relu" else maxima.tanh()
    for layer in encoder.highway_layers:
        new, gate = layer(vectors).chunk(2, 1)
        gate = gate.sigmoid()
        vectors = gate * vectors + (1 - gate) * new.relu()
    return vectors if encoder._projection is None else encoder._projection(vectors)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("filters", [((1, 4), (3, 5)), ((2, 3), (9, 4)), ((50, 3),), ((2, 5),)])
@pytest.mark.parametrize("n_highway", [0, 2])
@pytest.mark.parametrize("random_ids", [False, True])
def test_values_and_gradient(activation, filters, n_highway, random_ids, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 500)  # several chunks
    monkeypatch.setattr(module, "_FEW_WORDS", 4)  # several lengths
    torch.manual_seed(0)
    encoder = CharacterEncoder(CharCnnOptions(filters, activation, 3, n_highway), 5).double()
    assert (encoder._projection is None) == (filters == ((2, 5),))
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    ids = IDS
    if random_ids:
        ids = torch.randint(0, 262, IDS.shape)
        ids[3] = ids[7]
        ids[4] = 0
        ids[5] = 261
    factors = torch.randn(len(ids), 5, dtype=torch.double)
    results = []
    for encode in (encoder, lambda ids: encode_directly(encoder, ids)):
        encoder.zero_grad()
        vectors = encode(ids)
        (vectors * factors).sum().backward()
        grads = [parameter.grad.clone() for parameter in encoder.parameters()]
        results.append([vectors.detach(), *grads])
    for actual, expected in zip(*results):
        torch.testing.assert_close(actual, expected)
    with torch.no_grad():
        torch.testing.assert_close(encoder(ids), results[1][0])


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("max_cached_words", [0, 9])
def test_ids_of_any_type_and_layout(dtype, max_cached_words):
    encoder = CharacterEncoder(CharCnnOptions(((2, 200),), "relu", 3), 4).double()
    encoder.max_cached_words = max_cached_words
    expected = encode_directly(encoder, IDS)
    (expected_grad,) = torch.autograd.grad(expected.sum(), encoder._char_embedding_weights)
    ids = IDS.to(dtype)
    layouts = [ids, ids.t().contiguous().t(), torch.cat([ids, ids], 1)[:, :50]]
    for each in (*layouts, ids[:1].expand(5, 50), ids[:0]):
        vectors = expected[:1].expand(5, 4) if len(each) == 5 else expected[: len(each)]
        torch.testing.assert_close(encoder(each), vectors)
        with torch.no_grad():
            torch.testing.assert_close(encoder(each), vectors.detach())
    (grad,) = torch.autograd.grad(encoder(layouts[1]).sum(), encoder._char_embedding_weights)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("trained", range(5))
def test_gradient_of_one_parameter(trained):
    """Over two calls, the second of which computes its gradient twice."""
    torch.manual_seed(trained)
    encoder = CharacterEncoder(CharCnnOptions(((1, 4), (3, 5)), "tanh", 3), 5).double()
    for index, (_, parameter) in enumerate(sorted(encoder.named_parameters())):
        parameter.requires_grad_(index == trained)
    (parameter,) = (each for each in encoder.parameters() if each.requires_grad)
    expected = 0
    for ids, times in ((IDS, 1), (IDS[:3], 2)):
        with torch.autocast("cpu", torch.bfloat16):
            vectors = encoder(ids)
            assert vectors.dtype == torch.double
            for retain_graph in (True, False)[-times:]:
                vectors.square().sum().backward(retain_graph=retain_graph)
        loss = times * encode_directly(encoder, ids).square().sum()
        expected = expected + torch.autograd.grad(loss, parameter)[0]
    torch.testing.assert_close(parameter.grad, expected)
    with torch.inference_mode():
        torch.testing.assert_close(encoder(ids).clone(), vectors.detach())


class Counted(CharacterEncoder):
    """Lists how many words each call of `encode` has."""

    def __init__(self, max_cached_words=0):
        super().__init__(CharCnnOptions(((1, 4), (2, 3)), "relu", 3, 1), 5)
        self.max_cached_words = max_cached_words
        self.counts = []

    def encode(self, character_ids, prepared=None):
        self.counts.append(len(character_ids))
        return super().encode(character_ids, prepared)


def test_equal_words_are_computed_once():
    encoder = Counted()
    expected = encode_directly(encoder, IDS)
    for vectors in (encoder(IDS), encoder.embed_words(WORDS)):
        torch.testing.assert_close(vectors, expected)
    with torch.no_grad():
        encoder(IDS)
    assert encoder.counts == [len(set(WORDS))] * 3


def test_cached_words_are_one_for_ids_and_spellings():
    encoder = Counted(max_cached_words=10)
    with torch.no_grad():
        expected = encoder(IDS)
        assert torch.equal(encoder.embed_words(WORDS), expected)
        assert torch.equal(encoder(IDS.flip(0)), expected.flip(0))
        assert encoder.counts == [len(set(WORDS))]
        encoder.embed_words(["new"])  # one too many for it
        assert torch.equal(encoder.embed_words(["a", "new"])[0], expected[2])
    assert encoder.counts == [len(set(WORDS)), 1, 1]
    assert encoder.embed_words(["a"]).requires_grad
    assert encoder.counts[3:] == [1]
    encoder.precision = "bfloat16"
    with torch.no_grad():
        encoder.embed_words(["a"])
    assert encoder.counts[4:] == [1]


def test_some_words_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_WORDS_AT_ONCE", 3)
    encoder = Counted(max_cached_words=50)
    encoder.keep_words(["a", "b", "c", "d"])
    with torch.no_grad():
        encoder.embed_words(["a", "x"])
        encoder.forget_words()
        encoder.embed_words(["d", "x"])
    assert encoder.counts == [3, 1, 1, 1]


def test_start_is_bilm_tfs():
    encoder = CharacterEncoder(CharCnnOptions(((1, 400), (2, 600)), "tanh", 16, 1), 10)
    assert (encoder._char_embedding_weights[0] == 0).all()
    assert encoder._char_embedding_weights.abs().max() <= 1
    for width, convolution in enumerate(encoder.convolutions, 1):
        assert convolution.weight.std().item() == pytest.approx((width * 16) ** -0.5, rel=0.05)
    (layer,) = encoder.highway_layers
    assert layer.weight.std().item() == pytest.approx(1000**-0.5, rel=0.01)
    assert layer.bias.tolist() == [0.0] * 1000 + [2.0] * 1000
    assert encoder._projection.weight.std().item() == pytest.approx(1000**-0.5, rel=0.05)
    assert not encoder._projection.bias.any()
    weight = CharacterEncoder(CharCnnOptions(((3, 600),), "relu", 16), 10).convolutions[0].weight
    assert weight.abs().max() <= 0.05
    assert weight.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.05)


# torch.mm doesn't promise that a row doesn't depend on the others; oneDNN's products don't.
@pytest.mark.parametrize(
    "precision", [each for each in ("float32", "bfloat16") if has_onednn(getattr(torch, each))]
)
def test_a_words_vector_is_the_same_in_any_company(precision):
    torch.manual_seed(1)
    encoder = CharacterEncoder(CharCnnOptions(((1, 32), (3, 256)), "relu", 16, n_highway=2), 128)
    encoder.precision = precision
    words = [f"word{i}" * (1 + i % 7) for i in range(150)]
    ids = torch.from_numpy(CharacterTable().lookup(words)).long()  # (n_words, 50)
    with torch.no_grad():
        expected = encoder(ids)
        for some in ([3], [149, 3], list(range(40, 75)), list(range(150))[::-1]):
            assert torch.equal(encoder(ids[some]), expected[some])
