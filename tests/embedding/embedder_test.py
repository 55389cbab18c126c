"""Layers of sentences, as AllenNLP 0.9's `ElmoEmbedder` has them."""

import io
import itertools
import pickle
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import tqdm.std

from allennlp_elmo_plugin.bilm.kernels import ngrams
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.embedding import embedder as embedder_module
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.elmo.many_langs_encoder_test import FIXTURES
from tests.support.originals import elmo as original
from tests.support.testing import (
    fork,
    limit_file_size,
    read_arrays,
    read_files,
    write_random_elmo,
)

LONG = "Nobody has ever counted the naïve ﬁsh in it , or so they say !"
SENTENCES = [text.split() for text in ("Alice saw the old mill .", "Yes .", "", LONG, "x" * 70)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3)


@pytest.fixture
def embedder(files):
    """As AllenNLP 0.9 has it, by the name of one of its two files."""
    return ElmoEmbedder(files[0], initial_state="carried")


def expected_layers(model, batch):
    """The layers by AllenNLP's own language model."""
    from allennlp.nn.util import remove_sentence_boundaries

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


def test_batches_equal_allennlps_language_model(files):
    """With states carried on."""
    embedder = ElmoEmbedder(*files, initial_state="carried")
    model = original._ElmoBiLm(*files)
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES[1:]):
        arrays = embedder.embed_batch(batch)
        assert_all_close(arrays, expected_layers(model, batch))
        assert all(array.base is None for array in arrays)  # A sentence owns its array.


def test_states_are_carried_only_if_asked(files, embedder):
    first, second = (embedder.embed_sentence(SENTENCES[0]) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(first[0], second[0])  # no context there
    embedder = ElmoEmbedder(*files)
    first = embedder.embed_batch(SENTENCES)
    np.testing.assert_equal(embedder.embed_batch(SENTENCES), first)
    assert_all_close(embedder.embed_batch(SENTENCES[::-1]), first[::-1])


@pytest.mark.parametrize("n_layers", [1, 3])
def test_shape_comes_from_the_model(tmp_path, n_layers):
    files = write_random_elmo(tmp_path, n_layers=n_layers, projection_dim=5)
    embedder = ElmoEmbedder(*files, initial_state="carried")
    assert embedder.embed_sentence(["a", "b"]).shape == (n_layers + 1, 2, 10)
    for n_sentences in (0, 1, 3):
        layers = embedder.embed_batch([[]] * n_sentences)
        shapes = [(array.shape, array.dtype) for array in layers]
        assert shapes == [((n_layers + 1, 0, 10), np.float32)] * n_sentences


def test_batch_to_embeddings(files):
    embedder = ElmoEmbedder(*files)
    expected = embedder.embed_batch(SENTENCES)
    layers, mask = embedder.batch_to_embeddings(map(iter, SENTENCES))
    assert mask.sum(1).tolist() == list(map(len, SENTENCES)) and not layers.requires_grad
    rows = [row[:, : len(words)].numpy() for row, words in zip(layers, SENTENCES)]
    assert_all_close(rows, expected)
    assert (layers.transpose(1, 2)[~mask] == 0).all()


def test_embed_sentences_is_lazy_and_keeps_the_order(files, embedder):
    iterator = iter(SENTENCES)
    layers = embedder.embed_sentences(map(iter, iterator), batch_size=2)
    first = next(layers)
    assert next(iterator) is SENTENCES[2]
    model = original._ElmoBiLm(*files)
    parts = (SENTENCES[:2], SENTENCES[3:])
    assert_all_close([first, *layers], [a for part in parts for a in expected_layers(model, part)])


LAYERS = {
    "concatenated": lambda layers: np.concatenate([*layers], axis=-1),
    1: lambda layers: layers[1],
    -1: lambda layers: layers[-1],
    (2, 0): lambda layers: layers[[2, 0]],
}


@pytest.mark.parametrize("asked", LAYERS, ids=str)
def test_layers_by_number_and_concatenated(asked, files, tmp_path):
    embedder = ElmoEmbedder(*files)
    expected = list(map(LAYERS[asked], embedder.embed_batch(SENTENCES)))
    embedder._segment_steps = 2  # as if the memory of a GPU were small
    for arrays in (
        embedder.embed_batch(SENTENCES, asked),
        embedder.embed_sentences(iter(SENTENCES), 2, asked),
        [embedder.embed_sentence(words, asked) for words in SENTENCES],
    ):
        assert_all_close(list(arrays), expected)
    (tmp_path / "text").write_text("\n".join(map(" ".join, SENTENCES)), encoding="utf-8")
    embedder.embed_file(tmp_path / "text", tmp_path / "out", asked)
    written = read_arrays(tmp_path / "out")
    assert_all_close([written[str(i)] for i in range(len(SENTENCES))], expected)
    vectors = embedder.encode(SENTENCES, layers=asked)
    for vector, array in zip(vectors, expected):
        np.testing.assert_allclose(vector, array.mean(-2) if array.size else 0 * vector, atol=1e-5)


@pytest.mark.parametrize("asked", [3, [0, 3], "last", None, ["top"]])
def test_layers_that_the_model_lacks(asked, files):
    embedder = ElmoEmbedder(*files)
    with pytest.raises(ValueError, match="are none of .*'concatenated'.*numbers from 0 to 2"):
        embedder.embed_batch(SENTENCES, asked)
    with pytest.raises(ValueError, match="are none of "):
        embedder.encode(SENTENCES, layers=asked)


def test_habits_of_other_packages(files, tmp_path):
    embedder = ElmoEmbedder(model=files[0])
    assert embedder.dim == embedder.embed_sentence(["a"]).shape[-1]
    assert embedder.to(torch.device("cpu")) is embedder
    embedder.save_pretrained(tmp_path / "saved")
    again = ElmoEmbedder.from_pretrained(tmp_path / "saved", initial_state="zero")
    expected = ElmoEmbedder(*files, initial_state="zero").embed_batch(SENTENCES)
    assert_all_close(again.embed_batch(SENTENCES), expected)
    with pytest.raises(ValueError, match="given twice: leave out model or options_file"):
        ElmoEmbedder(files[0], model="tiny")


def test_long_work_has_a_bar(files, capfd, monkeypatch):
    """From two seconds on; a batch of many words is embedded in parts, with the same numbers."""
    embedder = ElmoEmbedder(*files)
    expected = embedder.embed_batch(SENTENCES)
    monkeypatch.setattr(embedder_module, "MOST_WORDS_AT_ONCE", 20)
    calls = (
        lambda: embedder.embed_batch(SENTENCES),
        lambda: embedder.embed_sentences(SENTENCES, 1),
        lambda: embedder.embed_sentences(iter(SENTENCES), 1, show_progress_bar=False),
    )
    for seconds in (0.1, 10.0):
        monkeypatch.setattr(tqdm.std, "time", itertools.count(0, seconds).__next__)
        shown = []
        for call in calls:
            assert_all_close(list(call()), expected)
            shown.append("embedding: 100%" in capfd.readouterr().err)
        assert shown == [seconds > 2] * 2 + [False]


@pytest.mark.parametrize("pooling, layers", [("mean", "average"), ("max", "top"), ("mean", "all")])
def test_a_vector_of_each_sentence(files, pooling, layers, caplog):
    """In any batches; strings are split, and tokens may be objects, such as spaCy's."""
    embedder = ElmoEmbedder(*files, device="cpu")
    expected = []
    for words in SENTENCES:
        array = embedder.embed_sentence(words, layers)
        empty = np.zeros((*array.shape[:-2], array.shape[-1]))
        expected.append(getattr(np, pooling)(array, -2) if words else empty)
    tokens = [[SimpleNamespace(text=word) for word in words] for words in SENTENCES]
    for sentences in (SENTENCES, tokens, list(map(" ".join, SENTENCES))):
        for batch_tokens in (4096, 10):
            vectors = embedder.encode(sentences, pooling, layers, batch_tokens=batch_tokens)
            assert vectors.dtype == np.float32
            np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert "1 of 5 sentences have no words: rows of zeros" in caplog.text
    letters = embedder.encode(iter(["Yes"]), pooling, layers, tokenizer=list)
    np.testing.assert_array_equal(letters, embedder.encode([list("Yes")], pooling, layers))
    assert embedder.encode([], pooling, layers).shape == (0, *vectors.shape[1:])


def test_arguments_that_sentence_transformers_has(files, capfd, monkeypatch):
    embedder = ElmoEmbedder(*files)
    expected = embedder.encode(SENTENCES)
    embedder.view_batch = Mock(wraps=embedder.view_batch)
    vectors = embedder.encode(
        SENTENCES, batch_size=2, normalize_embeddings=True, convert_to_tensor=True
    )
    assert [len(call.args[0]) for call in embedder.view_batch.mock_calls] == [2, 2, 1]
    lengths = np.linalg.norm(expected, axis=1)
    assert lengths[2] == 0  # of the sentence without words
    np.testing.assert_allclose(vectors.norm(dim=1), lengths > 0, atol=1e-6)
    np.testing.assert_allclose(vectors.numpy() * lengths[:, None], expected, atol=1e-5)
    cosines = embedder.similarity(vectors, expected[:2])
    np.testing.assert_allclose(cosines, vectors @ vectors[:2].T, atol=1e-6)
    monkeypatch.setattr(tqdm.std, "time", itertools.count(0, 10).__next__)  # in which bars appear
    for show in (True, False):
        embedder.encode(SENTENCES, show_progress_bar=show)
        assert ("embedding: 100%" in capfd.readouterr().err) == show


@pytest.mark.parametrize("sentences", [["They play on the beach."], [["Well,", "it", "rained"]]])
def test_a_text_that_is_not_tokenised(sentences, caplog):
    embedder = ElmoEmbedder("tiny")
    embedder.encode(["Well , it rained ."])
    assert not caplog.text
    for _ in range(2):
        embedder.encode(sentences)
    (record,) = caplog.records
    assert record.message.startswith("the text: is this text tokenised?")
    assert record.message.endswith(
        "Pass strings and a `tokenizer`, or put spaces between words and punctuation."
    )
    embedder.encode(sentences, tokenizer=str.split)
    assert len(caplog.records) == 1


def test_pickles_do_not_depend_on_use():
    """`datasets` computes a function's results again if its pickle differs."""
    embedder = ElmoEmbedder("tiny")
    before = pickle.dumps(embedder)
    vectors = embedder.encode(["A sentence ."])
    assert pickle.dumps(embedder) == before
    np.testing.assert_array_equal(pickle.loads(before).encode(["A sentence ."]), vectors)


@pytest.mark.parametrize("name", ["tiny", str(FIXTURES / "latin_gpu_pickles"), "zip", "weights"])
def test_a_saved_model_is_a_name_of_it(name, files, tmp_path):
    if name == "zip":
        name = shutil.make_archive(str(tmp_path / "150"), "zip", FIXTURES / "words_only")
    embedder = ElmoEmbedder(*((None, files[1]) if name == "weights" else [name]))
    expected = embedder.embed_batch(SENTENCES)
    for _ in range(2):  # the second time over itself
        embedder.save(tmp_path / "new" / "saved")
        embedder = ElmoEmbedder(tmp_path / "new" / "saved")
        assert_all_close(embedder.embed_batch(SENTENCES), expected)


def test_a_full_disk_leaves_the_earlier_model(files, tmp_path):
    """Not its weights with the new options."""
    ElmoEmbedder("tiny").save(tmp_path)
    before, embedder = read_files(tmp_path), ElmoEmbedder(*files)

    def save():
        limit_file_size(4000)
        with pytest.raises(OSError, match="cannot write: File too large"):
            embedder.save(tmp_path)

    assert fork(save) == 0 and read_files(tmp_path) == before


def test_paths_and_short_calls(files, tmp_path, monkeypatch):
    """A path is a `Path`, too, and the device may follow a whole model."""
    options, weights = map(Path, files)
    expected = ElmoEmbedder(*files).embed_batch(SENTENCES)
    for names in ((options, weights), (options,), (options.parent,), (None, weights)):
        assert_all_close(ElmoEmbedder(*names).embed_batch(SENTENCES), expected)
    assert repr(ElmoEmbedder(options.parent)) == (
        f"<ElmoEmbedder {options.parent}, dimensions: 16, layers: 3, device: cpu>"
    )
    devices = []
    monkeypatch.setattr(ElmoBiLm, "to", lambda bilm, device: devices.append(device))
    for name in ("tiny", options.parent):
        assert [ElmoEmbedder(name, number).cuda_device for number in (0, 2, -1)] == [0, 2, -1]
    assert devices == ["cuda:0", "cuda:2", "cpu"] * 2
    ElmoEmbedder(device=0)
    assert devices[-1] == 0
    for twice in ({"cuda_device": 0}, {"weight_file": 0}):
        with pytest.raises(ValueError, match="leave out device or cuda_device"):
            ElmoEmbedder("tiny", device="cpu", **twice)
    text, output = tmp_path / "text.txt", tmp_path / "layers.hdf5"
    text.write_text("".join(f"{' '.join(words)}\n" for words in SENTENCES), encoding="utf-8")
    embedder = ElmoEmbedder(options)
    for by_path in ((text, output), (str(text), str(output))):
        assert embedder.embed_file(*by_path, overwrite=True)["sentences"] == len(SENTENCES)
        assert_all_close([read_arrays(output)[str(i)] for i in range(len(SENTENCES))], expected)
    with pytest.raises(FileNotFoundError, match="absent"):
        embedder.embed_file(tmp_path / "absent", output)
    (tmp_path / "options").mkdir()
    shutil.copy(options, tmp_path / "options")
    archive = Path(shutil.make_archive(str(tmp_path / "half"), "zip", tmp_path / "options"))
    with pytest.raises(FileNotFoundError, match=f"^{archive}: there is no weights.hdf5"):
        ElmoEmbedder(archive)


def test_vocab_to_cache_is_computed_in_advance(files, embedder, tmp_path, monkeypatch):
    words = [word for sentence in SENTENCES for word in sentence]
    cached = ElmoEmbedder(*files, vocab_to_cache=words, initial_state="carried")
    for batch in (SENTENCES, [["Alice", "unseen"], ["Yes"]]):
        assert_all_close(cached.embed_batch(batch), embedder.embed_batch(batch))
    cached = ElmoEmbedder(*files, vocab_to_cache=["a", "b"])
    cached.elmo_bilm.settled_state()
    encode = Mock(side_effect=AssertionError("computed characters"))
    monkeypatch.setattr(ngrams, "max_over_ngrams", encode)
    cached.embed_batch([["a", "b"], ["b"]])
    cached.embed_file(io.BytesIO(b"a b\nb\n"), str(tmp_path / "layers.hdf5"))
    with pytest.raises(AssertionError, match="computed characters"):
        cached.embed_file(io.BytesIO(b"a b\nc\n"), str(tmp_path / "others.hdf5"))


def test_mistakes(embedder):
    for call in (embedder.embed_sentence, embedder.embed_batch, embedder.batch_to_embeddings):
        with pytest.raises(ValueError, match="list of words"):
            call("A cat")
    for call, arguments in ((embedder.nearest, ["A", [["A"]]]), (embedder.encode, [["A cat"]])):
        with pytest.raises(ValueError, match='"carried".*use "settled"'):
            call(*arguments)
    embedder = ElmoEmbedder("tiny")
    for arguments, message in [
        (["A cat"], r"got the text 'A cat'; give a list of sentences: \[text\]"),
        ([["A cat"], "sum"], r"pooling is 'sum'; give one of \('mean', 'max'\)"),
        ([["A cat"], "mean", "last"], "the layers 'last' are none of .'all', 'top', 'average'"),
        ([["A cat", None]], "sentence 1 is None, but a sentence is a list of words"),
        ([["A cat", float("nan")]], r"sentence 1 is nan.* missing, .* fillna\(\"\"\) of a pandas"),
        ([SimpleNamespace(columns=["text"])], r"table: pass .*, such as table\[\"text\"\]"),
        ([SimpleNamespace(column_names=["text"])], r"table: pass .*, such as table\[\"text\"\]"),
        ([{"text": ["a", "b"]}], "got a table"),
        ([[["A"], [1.5]]], "sentence 1 has the word 1.5, a float"),
    ]:
        with pytest.raises(ValueError, match=message):
            embedder.encode(*arguments)
    for name in ("n_nearest", "max_occurrences"):
        with pytest.raises(ValueError, match=f"{name} is -1; it must be at least 1"):
            embedder.nearest("A", [["A", "cat"]], **{name: -1})
    for method, name in (
        *((embedder.encode, "batch_size"), (embedder.encode, "batch_tokens")),
        (embedder.embed_sentences, "batch_size"),
    ):
        for number in (0, -1):
            with pytest.raises(ValueError, match=f"{name} is {number}; it must be at least 1"):
                list(method([["A", "cat"]], **{name: number}))


@pytest.mark.parametrize("initial_state", ["carried", "settled", "zero"])
@pytest.mark.parametrize("max_tokens", [60, 13, 0])
def test_a_gpu_with_too_little_memory(files, monkeypatch, caplog, initial_state, max_tokens):
    """Batches are halved, or cut in time, with the same numbers, until even a word is too much."""
    rng = random.Random(0)
    batch = [[rng.choice("abcdef") for _ in range(n)] for n in (3, 40, 0, 25, 8, 9)]
    whole, small = (ElmoEmbedder(*files, initial_state=initial_state) for _ in range(2))
    bilm = small.elmo_bilm
    bilm.settled_state()
    run = bilm.run

    def refuse(vectors, *args, **kwargs):
        output = run(vectors, *args, **kwargs)  # the state has changed
        if len(vectors) > max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return output

    monkeypatch.setattr(bilm, "run", refuse)
    if not max_tokens:
        with pytest.raises(RuntimeError, match="CUDA out of memory"):
            small.embed_batch(batch)
        return
    for output_format in ("all", "average", "top"):  # the second time from carried states
        expected = whole.embed_batch(batch, output_format)
        for array, other in zip(small.embed_batch(batch, output_format), expected):
            assert array.shape == other.shape and array.dtype == other.dtype
            np.testing.assert_allclose(array, other, atol=1e-5)
    assert "Tried to allocate 2.00 GiB: embedding half as much at once" in caplog.text
