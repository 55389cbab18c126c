"""Layers of sentences, as AllenNLP 0.9's `ElmoEmbedder` has them."""

import io
import json
from typing import List

import h5py
import numpy as np
import pytest
import torch
from allennlp.nn.util import remove_sentence_boundaries

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState
from allennlp_elmo_plugin.bilm.checkpoints.weights import read_weights
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder, embed_in_segments
from tests.support.originals import elmo as original
from tests.support.testing import write_random_elmo

SENTENCES = [
    "Alice saw the old mill .".split(),
    "Yes .".split(),
    [],
    "Nobody has ever counted the naïve ﬁsh in it , or so they say !".split(),
    ["x" * 70],
]
DIM = 16


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3)


@pytest.fixture
def embedder(files):
    """As AllenNLP 0.9 has it."""
    return ElmoEmbedder(*files, initial_state="carried")


def expected_layers(model: torch.nn.Module, batch: List[List[str]]) -> List[np.ndarray]:
    """The layers by AllenNLP's own language model."""
    with torch.no_grad():
        output = model(original.batch_to_ids(batch))
    layers = [remove_sentence_boundaries(a, output["mask"])[0] for a in output["activations"]]
    stacked = torch.stack(layers, dim=1).numpy()
    return [row[:, : len(sentence)] for row, sentence in zip(stacked, batch)]


def assert_all_close(actual, expected):
    assert [a.shape for a in actual] == [e.shape for e in expected]
    for a, e in zip(actual, expected):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, e, atol=1e-5)


def test_batches_equal_allennlps_language_model_with_carried_state(files, embedder):
    model = original._ElmoBiLm(*files)
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES[1:]):
        assert_all_close(embedder.embed_batch(batch), expected_layers(model, batch))


def test_states_are_carried_only_if_asked(files, embedder):
    first, second = (embedder.embed_sentence(SENTENCES[0]) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(first[0], second[0])  # no context there
    embedder = ElmoEmbedder(*files)
    first = embedder.embed_batch(SENTENCES)
    assert_all_close(embedder.embed_batch(SENTENCES[::-1]), first[::-1])
    for array, again in zip(first, embedder.embed_batch(SENTENCES)):
        np.testing.assert_array_equal(array, again)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_shape_comes_from_the_model(tmp_path, n_layers):
    files = write_random_elmo(tmp_path, n_layers=n_layers, projection_dim=5)
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence(["a", "b"]).shape == (n_layers + 1, 2, 10)
    assert embedder.embed_sentence([]).shape == (n_layers + 1, 0, 10)


@pytest.mark.parametrize("n_sentences", [0, 1, 3])
def test_only_empty_sentences(embedder, n_sentences):
    layers = embedder.embed_batch([[]] * n_sentences)
    assert [(a.shape, a.dtype) for a in layers] == [((3, 0, DIM), np.float32)] * n_sentences


def test_batch_to_embeddings(embedder):
    activations, mask = embedder.batch_to_embeddings(SENTENCES)
    lengths = [len(sentence) for sentence in SENTENCES]
    assert activations.shape == (len(SENTENCES), 3, max(lengths), DIM)
    assert not activations.requires_grad
    assert mask.sum(dim=1).tolist() == lengths
    assert (activations.transpose(1, 2)[~mask] == 0).all()


def test_sentences_may_be_iterators(files):
    embedder = ElmoEmbedder(*files)
    expected = embedder.embed_batch(SENTENCES)
    assert_all_close(embedder.embed_batch(map(iter, SENTENCES)), expected)
    assert_all_close([embedder.embed_sentence(iter(SENTENCES[0]))], expected[:1])
    layers, mask = embedder.batch_to_embeddings(map(iter, SENTENCES))
    assert mask.sum(1).tolist() == list(map(len, SENTENCES))
    assert_all_close([layers[0, :, : len(SENTENCES[0])].numpy()], expected[:1])


def test_embed_sentences_is_lazy_and_keeps_the_order(files, embedder):
    taken = []

    def sentences():
        for sentence in SENTENCES:
            taken.append(sentence)
            yield sentence

    layers = embedder.embed_sentences(sentences(), batch_size=2)
    assert taken == []
    first = next(layers)
    assert len(taken) == 2
    model = original._ElmoBiLm(*files)
    parts = (SENTENCES[start : start + 2] for start in (0, 2, 4))
    assert_all_close([first, *layers], [a for part in parts for a in expected_layers(model, part)])


def test_a_sentence_owns_its_array(embedder):
    assert all(array.base is None for array in embedder.embed_batch(SENTENCES[:2]))


def test_precision(files, embedder):
    near = ElmoEmbedder(*files, initial_state="carried", precision="bfloat16")
    assert near.elmo_bilm.fingerprint() != embedder.elmo_bilm.fingerprint()
    for actual, expected in zip(near.embed_batch(SENTENCES), embedder.embed_batch(SENTENCES)):
        assert actual.dtype == np.float32
        difference = np.linalg.norm(actual - expected)
        assert difference <= 0.05 * np.linalg.norm(expected)
        assert difference > 0 or not actual.size


def test_vocab_to_cache_is_computed_in_advance(files, embedder, tmp_path):
    words = [word for sentence in SENTENCES for word in sentence]
    cached = ElmoEmbedder(*files, vocab_to_cache=words, initial_state="carried")
    for batch in (SENTENCES, [["Alice", "unseen"], ["Yes"]], SENTENCES[:3]):
        assert_all_close(cached.embed_batch(batch), embedder.embed_batch(batch))

    def refuse(*_):
        raise AssertionError("computed characters")

    cached = ElmoEmbedder(*files, vocab_to_cache=["a", "b"])
    cached.elmo_bilm.settled_state()
    cached.elmo_bilm.token_layer.encode = refuse
    cached.embed_batch([["a", "b"], ["b"]])
    cached.embed_file(io.BytesIO(b"a b\nb\n"), str(tmp_path / "layers.hdf5"))
    with pytest.raises(AssertionError, match="computed characters"):
        cached.embed_file(io.BytesIO(b"a b\nc\n"), str(tmp_path / "others.hdf5"))


class TestFile:
    def embed(self, embedder, path, text, **arguments):
        embedder.embed_file(io.BytesIO(text.encode("utf-8")), str(path), **arguments)
        return h5py.File(path, "r")

    def test_lines_keep_their_numbers(self, files, embedder, tmp_path):
        text = "A b .\r\n\n\tA\u00a0b  c\u3000d\x1ce \nA b .\n   \nlast"
        a_b, odd = ["A", "b", "."], ["A\u00a0b", "c\u3000d\x1ce"]
        expected = list(embedder.embed_sentences([a_b, [], odd, a_b, [], ["last"]], batch_size=2))
        embedder.elmo_bilm._elmo_lstm.reset_states()
        with self.embed(embedder, tmp_path / "layers.hdf5", text, batch_size=2) as file:
            assert set(file) == {*map(str, range(6)), "sentence_to_index"}
            assert_all_close([file[str(i)][...] for i in range(6)], expected)
            mapping = file["sentence_to_index"]
            assert mapping.shape == (1,)
            assert h5py.check_string_dtype(mapping.dtype).length is None
            # The last of the same sentences, as AllenNLP 0.9 has it
            expected = {"A b .": "3", "": "4", "A\u00a0b  c\u3000d\x1ce": "2", "last": "5"}
            assert json.loads(mapping[0]) == expected

    @pytest.mark.parametrize(
        "output_format, select",
        [
            ("all", lambda layers: layers),
            ("top", lambda layers: layers[2]),
            ("average", lambda layers: (layers[0] + layers[1] + layers[2]) / 3),
        ],
    )
    def test_output_formats(self, files, tmp_path, output_format, select):
        embedder = ElmoEmbedder(*files)
        expected = select(embedder.embed_sentence(["A", "b", "."]))
        path = tmp_path / "layers.hdf5"
        with self.embed(embedder, path, "A b .\n", output_format=output_format) as file:
            assert_all_close([file["0"][...]], [expected])

    @pytest.mark.parametrize(
        "arguments, names",
        [
            ({"forget_sentences": True}, set()),
            ({"include_sentence_indices": True}, {"sentence_to_index", "sentence_indices"}),
        ],
    )
    def test_mappings(self, embedder, tmp_path, arguments, names):
        embedder.embed_file(io.StringIO("naïve\nb\n"), str(tmp_path / "o"), **arguments)
        with h5py.File(tmp_path / "o", "r") as file:
            assert set(file) == {"0", "1"} | names
            for name in names:
                assert json.loads(file[name][0]) == {"naïve": "0", "b": "1"}

    def test_undecodable_bytes_are_named_and_nothing_is_written(self, embedder, tmp_path):
        (tmp_path / "input.txt").write_bytes(b"good\nna\xefve\n")
        with open(tmp_path / "input.txt", "rb") as file:
            with pytest.raises(ValueError, match="input.txt, line 2: byte 0xef is not"):
                embedder.embed_file(file, str(tmp_path / "layers.hdf5"), batch_size=1)
        assert [path.name for path in tmp_path.iterdir()] == ["input.txt"]

    def test_existing_output_is_kept_unless_told_otherwise(self, embedder, tmp_path):
        path = tmp_path / "layers.hdf5"
        path.write_text("precious", encoding="utf-8")
        with pytest.raises(ValueError, match="exists already"):
            self.embed(embedder, path, "a\n")
        with pytest.raises(ValueError, match="UTF-8"):
            embedder.embed_file(io.BytesIO(b"\xff"), str(path), overwrite=True)
        assert path.read_text(encoding="utf-8") == "precious"
        with self.embed(embedder, path, "a\n", overwrite=True) as file:
            assert "0" in file

    def test_empty_input(self, embedder, tmp_path):
        with self.embed(embedder, tmp_path / "o", "") as file:
            assert set(file) == {"sentence_to_index"}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda embedder: embedder.embed_sentence("A cat"), "list of words"),
        (lambda embedder: embedder.embed_batch("A cat"), "list of words"),
        (lambda embedder: embedder.embed_batch(["A cat", "sat"]), "list of words"),
        (lambda embedder: embedder.batch_to_embeddings(["A cat"]), "list of words"),
        (lambda embedder: list(embedder.embed_sentences("A cat")), "list of words"),
        (lambda embedder: list(embedder.embed_sentences(["A cat", "sat"])), "list of words"),
        (lambda embedder: embedder.embed_batch([["a", 1]]), "words are strings"),
        (lambda embedder: ElmoEmbedder("tiny", cuda_device=99), "there is no GPU 99"),
    ],
)
def test_mistakes(embedder, call, message):
    with pytest.raises(ValueError, match=message):
        call(embedder)


SEGMENTED = [list("abcdefghij"), [], ["x"], list("klmnopqrst"), ["long" * 30, "naïve", "y"]]
BOUNDED = [["<S>", *words, "</S>"] for words in SEGMENTED]


@pytest.mark.parametrize("width", [1, 2, 3, 12, 100])
@pytest.mark.parametrize("starts_from", ["zero", "state", "fixed state"])
def test_segments_give_the_numbers_of_one_run(tmp_path, width, starts_from):
    options_file, weight_file = write_random_elmo(tmp_path)
    bilm = BiLm(BiLmOptions.from_file(options_file))
    read_weights(weight_file, bilm)
    states = [CarriedState(), CarriedState()]
    with torch.no_grad():
        if starts_from != "zero":
            for state in states:
                bilm.run_words(BOUNDED[::-1], carried=state)
        if starts_from == "fixed state":
            states = list(map(FixedState, states))
        output = bilm.run_words(BOUNDED, carried=states[0])
        expected = torch.stack([output.unpack(layer, 1) for layer in range(output.n_layers)])
        found = embed_in_segments(bilm, SEGMENTED, states[1], width, lambda layers: layers)
    for row, (words, array) in enumerate(zip(SEGMENTED, found)):
        np.testing.assert_allclose(array, expected[:, row, : len(words)], atol=1e-5)
    # The state after the last words is the same, too.
    torch.testing.assert_close(states[0].states, states[1].states, atol=1e-5, rtol=0)
