"""Every public path on a GPU gives the CPU's numbers."""

import copy
import io
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import h5py
import numpy
import pytest
import torch
from allennlp.common.util import int_to_device
from allennlp.modules.seq2seq_encoders import PassThroughEncoder

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.benchmark.cached_bilm import keep_vectors
from allennlp_elmo_plugin.modules.seq2seq_encoders.elmo_output_encoder import ElmoOutputEncoder
from allennlp_elmo_plugin.modules.token_embedders import ElmoMultiTokenEmbedder, ElmoTokenEmbedder
from tests.testing import write_random_elmo

SENTENCES = [
    "Alice saw the old mill .".split(),
    "Yes .".split(),
    "Nobody has ever counted the fish in it , or so they say !".split(),
    ["x" * 70],
]
WORDS = ["@@PADDING@@", "Alice", "saw", "the", "mill", "."]

Files = Tuple[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3)


def arrays_of(value: Any) -> Any:
    """The same with numpy's arrays for tensors."""
    if isinstance(value, dict):
        return {key: arrays_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [arrays_of(each) for each in value]
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def assert_close(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_close(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected):
            assert_close(*pair)
    elif isinstance(expected, (numpy.ndarray, float)):
        numpy.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    else:
        assert actual == expected


# `ElmoEmbedder`


def embed_sentence(embedder: ElmoEmbedder) -> Any:
    return [embedder.embed_sentence(sentence) for sentence in [*SENTENCES, [], SENTENCES[0]]]


def embed_batch(embedder: ElmoEmbedder) -> Any:
    formats = ("all", "top", "average")
    return [embedder.embed_batch([*SENTENCES, []], each) for each in formats]


def embed_sentences(embedder: ElmoEmbedder) -> Any:
    return list(embedder.embed_sentences(SENTENCES * 3, batch_size=2))


def batch_to_embeddings(embedder: ElmoEmbedder) -> Any:
    embeddings, mask = embedder.batch_to_embeddings(SENTENCES)
    assert {embeddings.device, mask.device} == {int_to_device(embedder.cuda_device)}
    return embeddings, mask


def in_windows(embedder: ElmoEmbedder) -> Any:
    embedder._window_steps = 3
    return [embedder.embed_batch(SENTENCES), embedder.embed_sentence(SENTENCES[2])]


def embed_file(embedder: ElmoEmbedder, folder: Path) -> Any:
    output = folder / f"{embedder.cuda_device}.hdf5"
    text = "\n".join(map(" ".join, SENTENCES)) + "\n\n"
    embedder.embed_file(io.BytesIO(text.encode()), str(output), batch_size=2)
    with h5py.File(output, "r") as file:
        return {key: file[key][...] for key in file if key != "sentence_to_index"}


@pytest.mark.parametrize("initial_state", ["settled", "zero", "carried"])
@pytest.mark.parametrize(
    "path", [embed_sentence, embed_batch, embed_sentences, batch_to_embeddings, in_windows]
)
def test_embedder(
    path: Callable[[ElmoEmbedder], Any], initial_state: str, files: Files, pretend_gpu: Any
) -> None:
    expected, actual = (
        arrays_of(path(ElmoEmbedder(*files, device, initial_state=initial_state)))
        for device in (-1, 0)
    )
    assert_close(actual, expected)


@pytest.mark.parametrize("initial_state", ["settled", "carried"])
def test_embed_file(initial_state: str, files: Files, tmp_path: Path, pretend_gpu: Any) -> None:
    expected, actual = (
        embed_file(ElmoEmbedder(*files, device, initial_state=initial_state), tmp_path)
        for device in (-1, 0)
    )
    assert_close(actual, expected)


def test_embedder_with_vocab_to_cache(files: Files, pretend_gpu: Any) -> None:
    expected, actual = (
        ElmoEmbedder(*files, device, vocab_to_cache=WORDS[1:]).embed_batch(SENTENCES)
        for device in (-1, 0)
    )
    assert_close(actual, expected)


@pytest.mark.parametrize("initial_state", ["settled", "carried"])
@pytest.mark.parametrize("n_tokens", [2, 4, 9])
def test_out_of_memory(
    n_tokens: int,
    initial_state: str,
    files: Files,
    pretend_gpu: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = ElmoEmbedder(*files, initial_state=initial_state)
    embedder = ElmoEmbedder(*files, 0, initial_state=initial_state)
    run_layers = embedder.elmo_bilm.run_layers

    def run_layers_with_little_memory(vectors: Any, packings: Any, *args: Any) -> Any:
        n_steps = len(packings["forward"].batch_sizes)
        if n_steps > n_tokens:
            raise pretend_gpu.out_of_memory()
        return run_layers(vectors, packings, *args)

    monkeypatch.setattr(embedder.elmo_bilm, "run_layers", run_layers_with_little_memory)
    for _ in range(2):
        assert_close(embedder.embed_batch(SENTENCES), expected.embed_batch(SENTENCES))


# `Elmo` and what is made of it


def _elmo(files: Files, **kwargs: Any) -> Elmo:
    torch.manual_seed(1)
    elmo = Elmo(*files, 2, **{"dropout": 0.0, **kwargs})
    with torch.no_grad():
        for mix in elmo._scalar_mixes:
            for parameter in mix.parameters():
                parameter.normal_()
    return elmo


def forward(elmo: Elmo, device: torch.device) -> Any:
    outputs = [elmo(batch_to_ids(batch).to(device)) for batch in (SENTENCES, SENTENCES[1:])]
    for output in outputs:
        assert output["mask"].device == device
        assert {each.device for each in output["elmo_representations"]} == {device}
    return outputs


def forward_of_more_dimensions(elmo: Elmo, device: torch.device) -> Any:
    return elmo(batch_to_ids(SENTENCES).view(2, 2, -1, 50).to(device))


def embed_written_sentences(elmo: Elmo, device: torch.device) -> Any:
    return [elmo.embed_sentences(SENTENCES), elmo.embed_sentences(SENTENCES[1:])]


def train(elmo: Elmo, device: torch.device) -> Any:
    optimizer = torch.optim.Adam(
        [parameter for parameter in elmo.parameters() if parameter.requires_grad], lr=0.01
    )
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        output = elmo(batch_to_ids(SENTENCES).to(device))
        loss = sum(each.pow(2).mean() for each in output["elmo_representations"])
        loss.backward()
        gradients = [p.grad for p in elmo.parameters() if p.grad is not None]
        assert gradients and {each.device for each in gradients} == {device}
        losses.append([loss, [gradient.norm() for gradient in gradients]])
        optimizer.step()
    elmo.eval()
    with torch.no_grad():
        return losses, elmo(batch_to_ids(SENTENCES).to(device))


_KINDS: Dict[str, Dict[str, Any]] = {
    "carried": {},
    "settled": {"initial_state": "settled"},
    "zero": {"initial_state": "zero"},
    "layer norm": {"do_layer_norm": True},
    "boundaries": {"keep_sentence_boundaries": True},
    "fixed mix": {"scalar_mix_parameters": [1.0, 2.0, 3.0], "requires_grad": True},
    "trained": {"requires_grad": True},
    "trained, settled": {"requires_grad": True, "initial_state": "settled"},
    "bfloat16": {"precision": "bfloat16", "initial_state": "zero"},
    "no cache": {"max_cached_words": 0},
    "small cache": {"max_cached_words": 3},
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "path", [forward, forward_of_more_dimensions, embed_written_sentences, train]
)
def test_elmo(
    path: Callable[[Elmo, torch.device], Any],
    kind: str,
    files: Files,
    pretend_gpu: Any,
) -> None:
    results = []
    for device in (torch.device("cpu"), pretend_gpu.device):
        elmo = _elmo(files, **_KINDS[kind]).to(device)
        results.append(arrays_of(path(elmo, device)))
    if kind == "bfloat16":
        for a, b in zip(*(map(numpy.ndarray.flatten, _leaves(result)) for result in results)):
            numpy.testing.assert_allclose(a, b, rtol=0.1, atol=0.1)
    else:
        assert_close(results[1], results[0])


def _leaves(value: Any) -> List[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [numpy.asarray(value)]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_elmo_with_word_inputs(requires_grad: bool, files: Files, pretend_gpu: Any) -> None:
    results = []
    words = torch.tensor([[1, 2, 3, 4, 5], [3, 4, 0, 0, 0]])
    characters = batch_to_ids([WORDS[1:], ["the", "mill"]])
    for device in (torch.device("cpu"), pretend_gpu.device):
        elmo = _elmo(files, vocab_to_cache=WORDS, requires_grad=requires_grad).to(device)
        output = elmo(characters.to(device), words.to(device))
        assert output["mask"].device == device
        results.append(arrays_of([output, elmo(characters.to(device), 9 * words.to(device))]))
    assert_close(results[1], results[0])


@pytest.mark.parametrize("initial_state", ["carried", "settled", "zero"])
def test_a_model_that_moves(initial_state: str, files: Files, pretend_gpu: Any) -> None:
    expected = _elmo(files, initial_state=initial_state)
    elmo = _elmo(files, initial_state=initial_state)
    for device in ("cpu", "cuda:0", "cpu", "cuda:0", "cuda:0", "cpu"):
        elmo.to(device)
        ids = batch_to_ids(SENTENCES)
        actual = elmo(ids.to(device))
        assert actual["mask"].device == torch.device(device)
        assert_close(arrays_of(actual), arrays_of(expected(ids)))
        assert_close(
            arrays_of(elmo.embed_sentences(SENTENCES)),
            arrays_of(expected.embed_sentences(SENTENCES)),
        )


def test_copies(files: Files, pretend_gpu: Any) -> None:
    elmo = _elmo(files, initial_state="settled").to("cuda:0")
    ids = batch_to_ids(SENTENCES).to("cuda:0")
    expected = arrays_of(elmo(ids))
    assert_close(arrays_of(copy.deepcopy(elmo)(ids)), expected)
    other = _elmo(files, initial_state="settled")
    other.load_state_dict(elmo.state_dict())
    assert_close(arrays_of(other(ids.cpu())), expected)


def token_embedder(files: Files) -> Any:
    return ElmoTokenEmbedder(*files, dropout=0.0, projection_dim=6)


def multi_token_embedder(files: Files) -> Any:
    return ElmoMultiTokenEmbedder(*files, dropout=0.0)


def kept_vectors(files: Files) -> Any:
    embedder = ElmoTokenEmbedder(*files, dropout=0.0, initial_state="settled")
    keep_vectors(embedder, {})
    return embedder


def output_encoder(files: Files) -> Any:
    elmo = ElmoMultiTokenEmbedder(*files, dropout=0.0)
    encoder = ElmoOutputEncoder(PassThroughEncoder(16), 16, num_highway_layers=1)
    return torch.nn.Sequential(elmo, encoder)


@pytest.mark.parametrize(
    "make",
    [
        token_embedder,
        multi_token_embedder,
        kept_vectors,
        output_encoder,
    ],
)
def test_embedders_of_tasks(make: Callable[[Files], Any], files: Files, pretend_gpu: Any) -> None:
    results = []
    for device in (torch.device("cpu"), pretend_gpu.device):
        torch.manual_seed(2)
        module = make(files).to(device)
        outputs = []
        for batch in (SENTENCES, SENTENCES[1:], SENTENCES):
            output = module(batch_to_ids(batch).to(device))
            assert output.device == device
            output.sum().backward()
            outputs.append(output)
        gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        assert gradients
        results.append(arrays_of([outputs, gradients]))
    assert_close(results[1], results[0])
