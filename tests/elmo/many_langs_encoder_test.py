"""Models of ELMoForManyLangs, against the numbers of its own code (see the fixtures' README.md)."""

import json
import shutil

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from tests.support.bilm_tf import REFERENCE

FIXTURES = REFERENCE.with_name("elmo_for_many_langs")
VARIANTS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


def read(variant):
    """Return a model's folder, sentences, batches, and layers by run and sentence."""
    folder = FIXTURES / variant
    inputs = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    runs = {}
    with np.load(folder / "outputs.npz") as arrays:
        for name in arrays:
            run, _, index = name.partition("/")
            runs.setdefault(run, {})[int(index)] = arrays[name]
    return str(folder), inputs["sentences"], inputs["batches"], runs


def assert_all_close(actual, expected):
    for array, index in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array, expected[index], rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_original(variant, tmp_path):
    model, sentences, batches, expected = read(variant)
    zipped = shutil.make_archive(str(tmp_path / "150"), "zip", model)
    for name, words in ((model, None), (zipped, [word for tokens in sentences for word in tokens])):
        embedder = ElmoEmbedder(name, initial_state="zero", vocab_to_cache=words)
        assert_all_close(map(embedder.embed_sentence, sentences), expected["alone"])
        assert_all_close(embedder.embed_batch(sentences), expected["alone"])
        embedder = ElmoEmbedder(name, initial_state="carried", vocab_to_cache=words)
        layers = {}
        for batch in batches:
            layers |= zip(batch, embedder.embed_batch([sentences[i] for i in batch]))
        assert_all_close([layers[i] for i in expected["batches"]], expected["batches"])
    rows = sorted(expected["average"], key=lambda i: -len(sentences[i]))
    embedder = ElmoEmbedder(model, initial_state="carried")
    averages = dict(zip(rows, embedder.embed_batch([sentences[i] for i in rows], "average")))
    assert_all_close([averages[i] for i in expected["average"]], expected["average"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_character_ids_carry_words(variant):
    """Of at most 48 bytes; of longer ones the letters that are whole."""
    model, sentences, _, expected = read(variant)
    cut = [[word.encode()[:48].decode("utf-8", "ignore") for word in words] for words in sentences]
    elmo = Elmo(model, dropout=0.0, initial_state="zero", requires_grad=True)
    output = elmo(batch_to_ids(sentences))
    as_words = ElmoEmbedder(model, initial_state="zero").embed_batch(cut)
    assert cut != sentences or variant == "one_layer_clipped_zip"
    for i, (mix, layers) in enumerate(zip(output["elmo_representations"][0], as_words)):
        mix = mix[: len(sentences[i])].detach()
        np.testing.assert_allclose(mix, layers.mean(0), rtol=0, atol=1e-5)
        if cut[i] == sentences[i]:
            np.testing.assert_allclose(mix, expected["alone"][i].mean(0), rtol=0, atol=1e-5)
    sum(mix.sum() for mix in output["elmo_representations"]).backward()
    for name, parameter in elmo.bilm.named_parameters():
        assert parameter.grad.any(), name


def test_boundaries_and_words_spelled_like_them():
    """`<S>` is a word like any other, and `<bos>` the boundary, as in the original."""
    encoder = ElmoEmbedder(str(FIXTURES / "latin_gpu_pickles")).elmo_bilm.token_layer
    begin, other, with_nul = encoder.embed_words(["<bos>", "<S>", "a\0b"])
    assert (begin - other).abs().max() > 1e-2
    for word, vector in (("<bos>", begin), ("<S>", begin)):
        ids = batch_to_ids([[word]])  # where <S> is the boundary
        torch.testing.assert_close(encoder(ids)["token_embedding"][0, :2], vector.expand(2, -1))
    of_ids = encoder(batch_to_ids([["a\0b"]]))["token_embedding"][0, 1]
    torch.testing.assert_close(of_ids, with_nul)


def test_tables_have_the_characters_of_a_call(tmp_path):
    """Those of a dictionary of Korean would take a gigabyte."""
    folder = shutil.copytree(FIXTURES / "latin_gpu_pickles", tmp_path / "large")
    tensors = torch.load(folder / "token_embedder.pkl", map_location="cpu", weights_only=True)
    name = "char_emb_layer.embedding.weight"
    tensors[name] = torch.cat([tensors[name], torch.randn(2**17, 6)])
    torch.save(tensors, folder / "token_embedder.pkl")
    encoder = ElmoEmbedder(str(folder)).elmo_bilm.token_layer
    with torch.profiler.profile(profile_memory=True) as profile, torch.no_grad():
        encoder.embed_words(["a"])
    assert sum(max(0, event.self_cpu_memory_usage) for event in profile.events()) < 2**20
