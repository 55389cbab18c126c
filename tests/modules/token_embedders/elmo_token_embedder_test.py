import importlib

import pytest
import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.modules.token_embedders import TokenEmbedder

from allennlp_elmo_plugin.modules.token_embedders.elmo_token_embedder import ElmoTokenEmbedder
from tests.originals import ElmoTokenEmbedder as Original
from tests.originals import elmo as core_elmo
from tests.testing import write_random_elmo

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
        actual = ours(ids.view(*shape, 2, 50), words.view(*shape, 2))
        expected = original(ids.view(*shape, 2, 50), words.view(*shape, 2))
        assert actual.shape == expected.shape
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_registered_in_the_place_of_allennlps_class(files):
    assert TokenEmbedder.by_name("elmo_token_embedder") is ElmoTokenEmbedder
    # A later import of AllenNLP's module does nothing and raises nothing.
    importlib.import_module("allennlp.modules.token_embedders.elmo_token_embedder")
    assert TokenEmbedder.by_name("elmo_token_embedder") is ElmoTokenEmbedder
    options_file, weight_file = files
    embedder = TokenEmbedder.from_params(
        Params(
            {
                "type": "elmo_token_embedder",
                "options_file": options_file,
                "weight_file": weight_file,
                "projection_dim": 7,
                "vocab_to_cache": ["a", "b"],
                "scalar_mix_parameters": [1, 2, 3],
            }
        ),
        vocab=Vocabulary(),
    )
    assert isinstance(embedder, ElmoTokenEmbedder)
    assert embedder(IDS).shape == (3, 3, 7)
