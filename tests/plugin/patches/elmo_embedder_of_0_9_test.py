"""What programs written for AllenNLP 0.9 do with `allennlp.commands.elmo`."""

import copy
import inspect
import io
import pickle
import sys
from pathlib import Path
from subprocess import check_output

import allennlp.commands.elmo
import h5py
import numpy as np
import pytest
import torch
from allennlp.commands import elmo
from allennlp.commands.elmo import ElmoEmbedder, batch_to_ids
from allennlp.commands.subcommand import Subcommand
from allennlp.nn.util import remove_sentence_boundaries

from allennlp_elmo_plugin.pretrained import find_model as elmo_files
from tests.support import originals
from tests.support.elmo_pairs import assert_close
from tests.support.testing import write_random_elmo

SENTENCES = ["A small cat sat".split(), ["Dogs"], "They all ran off at noon .".split()]
PROTEINS = ["MKVLAA", "GS", "TTRLAWQ"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=5)


@pytest.fixture
def embedder(files):
    return ElmoEmbedder(*files)


class Embedder2019:
    """What 0.9's embedder computes, by AllenNLP's own language model."""

    def __init__(self, files):
        self.elmo_bilm = originals.elmo._ElmoBiLm(*files)

    def embed_batch(self, batch):
        empty = np.zeros((3, 0, 1024))
        if not any(batch):
            return [empty] * len(batch)
        with torch.no_grad():
            output = self.elmo_bilm(originals.elmo.batch_to_ids(batch))
        layers = [remove_sentence_boundaries(a, output["mask"])[0] for a in output["activations"]]
        rows = torch.stack(layers, dim=1).numpy()
        return [row[:, : len(words)] if words else empty for row, words in zip(rows, batch)]


def test_the_module_and_its_default_model(tmp_path, monkeypatch):
    assert elmo is allennlp.commands.elmo is sys.modules["allennlp.commands.elmo"]
    assert Subcommand.by_name("elmo") is elmo.Elmo and callable(elmo.elmo_command)
    assert elmo.DEFAULT_BATCH_SIZE == 64 and elmo.empty_embedding().shape == (3, 0, 1024)
    assert elmo.DEFAULT_OPTIONS_FILE.endswith("elmo_2x4096_512_2048cnn_2xhighway_options.json")
    options_file, weight_file = write_random_elmo(tmp_path, projection_dim=512, lstm_dim=512)
    downloads = {elmo.DEFAULT_OPTIONS_FILE: options_file, elmo.DEFAULT_WEIGHT_FILE: weight_file}
    monkeypatch.setattr(elmo_files, "cached_path", downloads.__getitem__)
    assert ElmoEmbedder().embed_sentence(["A", "cat"]).shape == (3, 2, 1024)
    names = ["options_file", "weight_file", "cuda_device"]
    assert list(inspect.signature(ElmoEmbedder).parameters) == names


def test_vectors_are_allennlps_over_a_sequence_of_batches(files, embedder, recwarn):
    original = Embedder2019(files)
    rng = np.random.RandomState(0)
    pool = [*SENTENCES, *PROTEINS, [], ["x" * 70, "naïve"]]
    for _ in range(12):
        batch = [pool[i] for i in rng.randint(len(pool), size=rng.randint(1, 6))]
        assert_close(embedder.embed_batch(batch), original.embed_batch(batch))
    assert_close([embedder.embed_sentence([])], original.embed_batch([[]]))
    assert_close([embedder.embed_sentence("MKV")], original.embed_batch(["MKV"]))
    expected = [*original.embed_batch(SENTENCES[:2]), *original.embed_batch(SENTENCES[2:])]
    assert_close(list(embedder.embed_sentences(iter(SENTENCES), 2)), expected)
    assert batch_to_ids(PROTEINS).equal(originals.elmo.batch_to_ids(PROTEINS))
    layers, mask = embedder.batch_to_embeddings(PROTEINS)
    assert layers.shape == (3, 3, 7, 16) and (1 - mask).sum(1).tolist() == [1, 5, 0]
    assert_close([layers[1, :, :2].numpy()], original.embed_batch(PROTEINS)[1:2])
    # flair, and ACE after it, moves states between devices when it loads a pickle.
    for elmo_embedder in (embedder, original):
        lstm = elmo_embedder.elmo_bilm._elmo_lstm
        lstm._states = [2 * state.cpu() for state in lstm._states]
        lstm._states[0] = lstm._states[0].cpu()
    assert_close(embedder.embed_batch(SENTENCES), original.embed_batch(SENTENCES))
    assert not recwarn
    with pytest.warns(UserWarning, match="letter by letter"):
        assert embedder.embed_sentence("a cat").shape == (3, 5, 16)


def test_paths_subclasses_copies_and_pickles(files, embedder):
    class Averaging(ElmoEmbedder):
        def embed_sentence(self, sentence):
            return super().embed_sentence(sentence).mean(0)

    averaging = Averaging(options_file=Path(files[0]), weight_file=Path(files[1]), cuda_device=-1)
    for elmo_embedder in (embedder, averaging):
        elmo_embedder.embed_batch(SENTENCES)
    copies = copy.deepcopy(embedder), pickle.loads(pickle.dumps(embedder))
    vectors = [elmo_embedder.embed_sentence(["A", "cat"]) for elmo_embedder in (*copies, averaging)]
    expected = embedder.embed_sentence(["A", "cat"])
    assert_close(vectors, [expected, expected, expected.mean(0)])
    assert type(embedder.indexer).__name__ == "ELMoTokenCharactersIndexer"
    # As joblib's processes, which import nothing else
    load = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer).embed_batch([['a']])))"
    assert check_output([sys.executable, "-c", load], input=pickle.dumps(embedder)) == b"1\n"


def test_an_existing_file_is_replaced(tmp_path, embedder):
    path = tmp_path / "layers.hdf5"
    for text in ("One\n", "A cat\nDogs\n"):
        embedder.embed_file(io.StringIO(text), str(path), "top", 2, True)
    with h5py.File(path, "r") as file:
        assert {key: value.shape for key, value in file.items()} == {"0": (2, 16), "1": (1, 16)}


def test_attributes_that_programs_read(files, embedder):
    ours, its = embedder.elmo_bilm, originals.elmo._ElmoBiLm(*files)
    lstms = ours._elmo_lstm, its._elmo_lstm
    assert lstms[0].num_layers == 2
    clips = "memory_cell_clip_value", "state_projection_clip_value"
    cells = [[*lstm.forward_layers, *lstm.backward_layers] for lstm in lstms]
    for pair in (lstms, *zip(*cells, strict=True)):
        for name in ("hidden_size", "input_size", "cell_size", *clips):
            assert getattr(pair[0], name, None) == getattr(pair[1], name, None)
        for parameters in zip(*(module.parameters() for module in pair), strict=True):
            assert torch.equal(*parameters)
    ours, its = ours._token_embedder, its._token_embedder
    assert ours._weight_file == its._weight_file
    assert its._options.items() <= ours._options.items()
    for name in ("_beginning_of_sentence_characters", "_end_of_sentence_characters"):
        assert getattr(ours, name).equal(getattr(its, name))
