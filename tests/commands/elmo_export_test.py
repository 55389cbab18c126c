"""`allennlp elmo-export`: what bilm-tf, AllenNLP and simple_elmo read."""

import json
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from allennlp.models import archive_model

from allennlp_elmo_plugin.elmo.elmo import Elmo, batch_to_ids
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file
from tests.support import bilm_tf
from tests.support.originals import elmo as original
from tests.support.testing import read_arrays, read_files, refused, write_random_elmo

FILES = "README.md, options.json, softmax.hdf5, vocab.txt, vocabulary, weights.hdf5"


def save_run(folder, options, arrays=None):
    """Make the folder of a training run, which may be one of bilm-tf; return its model."""
    torch.manual_seed(0)
    words = bilm_tf.read_vocabulary(folder / "vocabulary")
    model = BidirectionalLanguageModel(words, options=options)
    torch.nn.init.normal_(model.softmax.bias)
    if arrays is not None:
        bilm_tf.set_variables(model, arrays, "final")
    reader = {"type": "truncated_bptt_lm", "batch_size": 4}
    config = {"dataset_reader": reader, "model": {"type": "bidirectional_lm", "options": options}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), folder / "best.th")
    return model


@pytest.fixture
def model(run):
    """The model that bilm-tf trained, in the folder `run`."""
    return save_run(Path("run"), *bilm_tf.load_run("train_charcnn"))


@pytest.mark.parametrize("name", ["run", "run/model.tar.gz"])
def test_is_what_bilm_tf_dumps(name, model, run):
    archive_model("run")
    assert run(f"elmo-export {name} elmo") == f"Written to elmo: {FILES}\n"
    assert sorted(path.name for path in Path("elmo").iterdir()) == FILES.split(", ")
    expected = read_arrays(bilm_tf.REFERENCE / "checkpoint/weights.hdf5")
    np.testing.assert_equal(read_arrays("elmo/weights.hdf5"), expected)
    named = dict(bilm_tf.variables(model))
    for name, values in read_arrays("elmo/softmax.hdf5").items():
        assert np.array_equal(values, named[f"lm/{name}"])
    options = json.loads(Path("elmo/options.json").read_text(encoding="utf-8"))
    assert options["char_cnn"]["n_characters"] == 262 and options["n_tokens_vocab"] == 50
    words = read_vocabulary_file(bilm_tf.REFERENCE / "data" / "vocab.txt")
    assert read_vocabulary_file("elmo/vocab.txt") == words
    assert read_vocabulary_file("elmo/vocabulary/lm_tokens.txt") == words
    assert Path("elmo/README.md").read_text(encoding="utf-8").startswith("# ELMo: elmo\n")


def test_an_earlier_export_is_replaced_but_not_its_card(model, run):
    run("elmo-export run elmo")
    before = read_files("elmo")
    kept = {"config.json": b"", "README.md": b"completed by its author"}
    for name, text in {**kept, "options.json": b"old"}.items():
        Path("elmo", name).write_bytes(text)
    assert run("elmo-export run elmo --force") == f"Written to elmo: {FILES[11:]}\n"
    assert read_files("elmo") == {**before, **kept}


def test_zip_is_what_simple_elmo_reads(model, run, tmp_path):
    line = "elmo-export run elmo.zip --zip"
    written = ["README.md", "model.hdf5", "options.json", "vocab.txt"]
    assert run(line) == f"Written to elmo.zip: {', '.join(written)}\n"
    with zipfile.ZipFile("elmo.zip") as archive:
        assert archive.namelist() == written
        assert archive.read("vocab.txt").decode("utf-8").startswith("<S>\n</S>\n<UNK>\n")
        with h5py.File(archive.open("model.hdf5")) as file:
            assert file["char_embed"].shape[0] == 261
    assert ElmoEmbedder("elmo.zip").embed_sentence(["naïve", "東京"]).shape[1] == 2
    run(f"{line} --force --precision float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elmo.zip", "run"]
    with zipfile.ZipFile("elmo.zip") as archive, h5py.File(archive.open("model.hdf5")) as file:
        assert file["char_embed"].dtype == "float16"


def test_a_published_model_keeps_its_card_and_needs_no_vocabulary(run, capsys):
    write_random_elmo("elmo")
    assert run("elmo-export elmo out") == "Written to out: README.md, options.json, weights.hdf5\n"
    card, words = "# Mine\n\n## Licence\n\nfree\n", "<S>\n</S>\n<UNK>\nthe\n"
    Path("elmo/README.md").write_text(card, encoding="utf-8")
    Path("elmo/vocab.txt").write_text(words, encoding="utf-8")
    shutil.make_archive("elmo", "zip", "elmo")
    for source in ("elmo", "elmo.zip"):
        run(f"elmo-export {source} second.zip --zip --force")
        with zipfile.ZipFile("second.zip") as archive:
            assert archive.read("README.md").decode("utf-8") == card
            assert archive.read("vocab.txt").decode("utf-8") == words
    Path("elmo/vocab.txt").write_text("the\n", encoding="utf-8")
    assert "elmo/vocab.txt" in refused(capsys, "elmo-export", "elmo", "third")


@pytest.mark.parametrize("n_layers, bidirectional", [(1, True), (3, True), (2, False)])
def test_allennlp_reads_every_shape(n_layers, bidirectional, run):
    """TensorFlow drops `multi_rnn_cell` for one layer, and bilm-tf's reader does not find it."""
    width = 50 if bidirectional else 12
    options = {
        "char_cnn": {**bilm_tf.CHAR_CNN, "max_characters_per_token": width},
        "lstm": {**bilm_tf.LSTM, "n_layers": n_layers},
        **{"bidirectional": bidirectional, "sample_softmax": False},
    }
    model = save_run(Path("run"), options).eval()
    run("elmo-export run elmo")
    written = json.loads(Path("elmo/options.json").read_text(encoding="utf-8"))
    assert written["bidirectional"] is bidirectional
    assert written["char_cnn"]["max_characters_per_token"] == width
    layers = ElmoEmbedder("elmo", initial_state="zero").embed_sentence(["no"])
    with torch.no_grad():
        bounded = batch_to_ids([["<S>", "no", "</S>"]])[:, :, :width]
        expected = model.bilm(bounded).unpack(n_layers, strip=1)[0]
    np.testing.assert_allclose(layers[n_layers], expected, atol=1e-6)
    if bidirectional:
        ids = batch_to_ids([["characteristically", "naïve"]])
        files = "elmo/options.json", "elmo/weights.hdf5"
        both = [cls(*files, 1, dropout=0.0)(ids) for cls in (Elmo, original.Elmo)]
        ours, theirs = (output["elmo_representations"][0] for output in both)
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
