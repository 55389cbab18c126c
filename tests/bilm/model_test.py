import copy
from dataclasses import replace

import pytest
import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions
from allennlp_elmo_plugin.bilm.characters import sentences_to_character_ids
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.pretrained.weight_file import read_weights
from tests.support.processor import needs_bfloat16
from tests.support.testing import write_random_elmo

SENTENCES = [["<S>", "the", "cat", "sat", "</S>"], ["<S>", "the", "</S>"], ["<S>", "</S>"]]


@pytest.fixture
def bilm(tmp_path):
    sizes = {"lstm_dim": 256, "projection_dim": 64, "filters": ((1, 32), (2, 96))}
    options_file, weight_file = write_random_elmo(tmp_path, **sizes)
    module = BiLm(BiLmOptions.from_file(options_file))
    read_weights(weight_file, module)
    return module.eval()


def layers(output):
    return torch.stack([output.unpack(layer) for layer in range(output.n_layers)])


def run(bilm):
    ids = torch.from_numpy(sentences_to_character_ids(SENTENCES))
    return layers(bilm(ids, [5, 3, 2]))


@pytest.mark.parametrize("max_cached_words", [0, 3, 1000])
def test_words_are_their_characters_in_one_packed_text_or_two(bilm, max_cached_words):
    """The backward direction reads its own text as the forward one does, from its first word."""
    bilm.token_layer.max_cached_words = max_cached_words
    texts = SENTENCES, [sentence[::-1] for sentence in SENTENCES]
    ids, reverse_ids = (torch.from_numpy(sentences_to_character_ids(text)) for text in texts)
    words, places = torch.cat([ids, reverse_ids]).flatten(0, 1).unique(dim=0, return_inverse=True)
    tokens, reverse_tokens = places.view(2, 3, 5)
    for _ in range(2):  # before and after a step of the optimizer
        expected = layers(bilm(ids, [5, 3, 2]))
        expected.sum().backward()
        for grad in (False, False, True):
            with torch.set_grad_enabled(grad):
                outputs = [bilm(ids, torch.tensor([5, 3, 2])), bilm.run_words(SENTENCES)]
                outputs += bilm.run_words(*texts), bilm(ids, [5, 3, 2], reverse_ids, [5, 3, 2])
                outputs.append(bilm(tokens, [5, 3, 2], reverse_tokens, [5, 3, 2], None, words))
                for output in outputs:
                    assert output.layers["backward"][0].requires_grad == grad
                    torch.testing.assert_close(layers(output), expected, atol=1e-5, rtol=1e-5)
        torch.optim.SGD(bilm.parameters(), lr=1e-3).step()
    with torch.no_grad():
        assert (layers(bilm.run_words(SENTENCES)) - expected).abs().max() > 1e-3
        assert layers(bilm.run_words([])).shape == (3, 0, 0, 128)
        assert layers(bilm.run_words([[], []])).shape == (3, 2, 0, 128)


@pytest.mark.parametrize(
    "precision, bound", [pytest.param("bfloat16", 0.02, marks=needs_bfloat16), ("int8", 0.06)]
)
def test_precision(bilm, precision, bound):
    parameters = list(bilm.parameters())
    expected = run(bilm)
    grads = torch.autograd.grad(expected.square().sum(), parameters)
    with torch.no_grad():
        expected = run(bilm)
        bilm.set_precision(precision)
        for layer, expected_layer in zip(run(bilm), expected):
            assert layer.dtype == torch.float32
            assert 1e-5 < (layer - expected_layer).norm() / expected_layer.norm() < bound
    near_grads = torch.autograd.grad(run(bilm).square().sum(), parameters)
    for near, exact in zip(near_grads, grads):
        # "int8" is for inference alone.
        assert precision == "int8" or 0 < (near - exact).norm() < 0.05 * exact.norm()
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        with torch.no_grad():
            near = run(bilm.to(dtype))
        assert near.dtype == dtype
        assert 0 < (near - expected).norm() / expected.norm() < 0.06
    with pytest.raises(ValueError, match="precision is 'half'; it must be one of"):
        bilm.set_precision("half")


LSTM = {"dim": 6, "projection_dim": 4, "n_layers": 2}


def test_a_model_of_vocabulary_ids():
    bilm = BiLm(BiLmOptions.from_dict({"lstm": LSTM, "n_tokens_vocab": 9}))
    weight = bilm.token_layer.weight
    assert weight.shape == (9, 4) and 0.5 < weight.abs().max() <= (6 / 13) ** 0.5
    ids, reverse = torch.tensor([[3, 1, 8], [2, 3, 0]]), torch.tensor([[5, 6, 7], [4, 0, 0]])
    output = bilm(ids, [3, 2], reverse, torch.tensor([3, 1]))
    # In packed order: the first token of each row, then the second ones.
    assert torch.equal(output.layers["forward"][0], weight[[3, 2, 1, 3, 8]])
    assert torch.equal(output.layers["backward"][0], weight[[5, 4, 6, 7]])
    assert torch.equal(bilm(ids).layers["forward"][0], weight[[3, 2, 1, 3, 8, 0]])
    sum(layers[-1].sum() for layers in output.layers.values()).backward()
    assert weight.grad.is_sparse
    assert weight.grad.coalesce().indices()[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    forward = BiLm(replace(bilm.options, bidirectional=False))
    output = forward(ids, None, reverse)
    assert list(output.layers) == ["forward"] and output.n_layers == forward.num_layers == 3
    assert output.unpack(2).shape == (2, 3, 4) and forward.get_output_dim() == 4
    with pytest.raises(ValueError, match='need "char_cnn", or'):
        BiLm(BiLmOptions.from_dict({"lstm": LSTM}))


CHAR_CNN = {"embedding": {"dim": 3}, "filters": [[1, 4], [2, 4]], "n_highway": 1}
HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")
CHANGES = [getattr(torch.nn.Module, f"register_{hook}") for hook in HOOKS]
CHANGES.append(lambda layer, other: setattr(layer, "forward", other))
CHANGES.append(lambda layer, _: setattr(layer, "__class__", type("Own", (type(layer),), {})))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_layer_that_would_be_ignored_is_refused(change):
    bilm = BiLm(BiLmOptions.from_dict({"lstm": LSTM, "char_cnn": CHAR_CNN}))
    for name, layer in bilm.named_modules():
        if "." in name and not isinstance(layer, (torch.nn.ModuleList, torch.nn.Dropout)):
            changed = copy.deepcopy(bilm)
            change(changed.get_submodule(name), print)
            with pytest.raises(ValueError, match=f"layer {name.split('.')[-1]} of .* has a hook"):
                changed.run_words(SENTENCES)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_samples", [0, 2])
def test_a_second_derivative_is_refused(precision, num_samples):
    bilm = BiLm(BiLmOptions.from_dict({"lstm": LSTM, "char_cnn": CHAR_CNN}))
    softmax = Softmax(9, 4, num_samples)
    bilm.set_precision(precision)
    for name, parameter in [*bilm.named_parameters(), *softmax.named_parameters()]:
        layers = bilm.run_words([["a", "b"]]).layers
        vectors = layers["backward" if "backward" in name else "forward"][-1]
        loss = softmax.loss(vectors, torch.tensor([3, 8]))
        (grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            (loss + grad.to_dense().norm()).backward()
