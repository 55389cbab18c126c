"""`allennlp elmo-export`: what bilm-tf, AllenNLP and simple_elmo read."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, Dict

import h5py
import numpy as np
import pytest
import torch
from allennlp.models import archive_model

from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables, variables
from tests.support.originals import elmo as original
from tests.support.testing import read_arrays, read_files, refused, write_random_elmo

SENTENCES = [["the", "naïve", "東京"], ["no"]]


def save_run(folder: Path, options: Dict[str, Any]) -> BidirectionalLanguageModel:
    """Make the folder of a training run; return its model."""
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(read_vocabulary(folder / "vocabulary"), options=options)
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4, "files": ["/home/a.txt"]},
        "model": {"type": "bidirectional_lm", "options": options},
        "trainer": {"num_epochs": 3},
        "train_data_path": "/home/me/text",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), folder / "best.th")
    return model


@pytest.fixture
def model(run: Any) -> BidirectionalLanguageModel:
    """The model that bilm-tf trained, in the folder `run`."""
    options, arrays = load_run("train_charcnn")
    model = save_run(Path("run"), options)
    set_variables(model, arrays, "final")
    torch.save(model.state_dict(), "run/best.th")
    return model


@pytest.mark.parametrize("archived", [False, True])
def test_is_what_bilm_tf_dumps(model: Any, archived: bool, run: Any) -> None:
    if archived:
        archive_model("run")
    printed = run(f"elmo-export {'run/model.tar.gz' if archived else 'run'} elmo")
    assert printed == (
        "Written to elmo: options.json, weights.hdf5, softmax.hdf5, vocab.txt, vocabulary, "
        "README.md\n"
    )
    written, expected = map(
        read_arrays, ("elmo/weights.hdf5", REFERENCE / "checkpoint/weights.hdf5")
    )
    assert written.keys() == expected.keys()
    for name in expected:
        assert np.array_equal(written[name], expected[name]), name
    softmax, named = read_arrays("elmo/softmax.hdf5"), dict(variables(model))
    for name in ("softmax/W", "softmax/b"):
        assert np.array_equal(softmax[name], named[f"lm/{name}"])
    options = json.loads(Path("elmo/options.json").read_text(encoding="utf-8"))
    assert options["char_cnn"]["n_characters"] == 262 and options["n_tokens_vocab"] == 50
    words = read_vocabulary_file(REFERENCE / "data" / "vocab.txt")
    assert read_vocabulary_file("elmo/vocab.txt") == words
    assert read_vocabulary_file("elmo/vocabulary/lm_tokens.txt") == words
    assert {path.name for path in Path("elmo").iterdir()} == {
        *("options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt", "vocabulary", "README.md")
    }


def test_allennlp_reads_it(model: Any) -> None:
    export("run", "elmo")
    files = ["elmo/options.json", "elmo/weights.hdf5"]
    ids = batch_to_ids(SENTENCES)
    ours, theirs = (
        cls(*files, 1, dropout=0.0)(ids)["elmo_representations"][0] for cls in (Elmo, original.Elmo)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    # And the exported layers are those of the model that was trained.
    with torch.no_grad():
        expected = model.eval().bilm(batch_to_ids([["<S>", "no", "</S>"]])).unpack(2, strip=1)[0]
        exported = original._ElmoBiLm(*files)(batch_to_ids([["no"]]))["activations"][2][0, 1:2]
    torch.testing.assert_close(exported, expected, atol=1e-6, rtol=1e-6)


def test_an_earlier_export_is_replaced_only_if_asked(model: Any, run: Any) -> None:
    export("run", "elmo")
    before = read_files("elmo")
    Path("elmo/notes.txt").touch()
    Path("elmo/options.json").write_text("old", encoding="utf-8")
    Path("elmo/README.md").write_text("completed by its author", encoding="utf-8")
    printed = run("elmo-export run elmo --force")
    assert printed.endswith("vocab.txt, vocabulary\n")
    assert read_files("elmo") == {
        **before,
        "notes.txt": b"",
        "README.md": b"completed by its author",
    }


def test_zip(model: Any, run: Any, tmp_path: Path) -> None:
    """What simple_elmo reads."""
    line = "elmo-export run elmo.zip --zip"
    written = "options.json, model.hdf5, vocab.txt, README.md"
    assert run(line) == f"Written to elmo.zip: {written}\n"
    with zipfile.ZipFile("elmo.zip") as archive:
        assert archive.namelist() == ["options.json", "model.hdf5", "vocab.txt", "README.md"]
        assert json.loads(archive.read("options.json"))["char_cnn"]["n_characters"] == 262
        assert archive.read("vocab.txt").decode("utf-8").startswith("<S>\n</S>\n<UNK>\n")
        with h5py.File(archive.open("model.hdf5")) as file:
            assert file["char_embed"].shape[0] == 261
    export("run", "elmo")
    first, second = (
        ElmoEmbedder(name).embed_sentence(SENTENCES[0]) for name in ("elmo", "elmo.zip")
    )
    assert np.array_equal(first, second)
    run(f"{line} --force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elmo", "elmo.zip", "run"]


def test_a_published_model(model: Any, run: Any) -> None:
    """It may have neither softmax nor vocabulary; its card has the licence and is kept."""
    export("run", "first")
    card = "# Mine\n\n## Licence\n\nfree\n"
    Path("first/README.md").write_text(card, encoding="utf-8")
    shutil.make_archive("first", "zip", "first")
    for source in ("first", "first.zip"):
        export(source, "second.zip", force=True, zipped=True)
        with zipfile.ZipFile("second.zip") as archive:
            assert archive.read("README.md").decode("utf-8") == card
    for name in ("softmax.hdf5", "vocab.txt", "README.md"):
        Path("first", name).unlink()
    shutil.rmtree("first/vocabulary")
    options = json.loads(Path("first/options.json").read_text(encoding="utf-8"))
    del options["n_tokens_vocab"]
    Path("first/options.json").write_text(json.dumps(options), encoding="utf-8")
    assert "weights.hdf5, README.md\n" in run("elmo-export first third")
    assert read_files("third").keys() == {"options.json", "weights.hdf5", "README.md"}
    assert "| Vocabulary | none in the files |" in Path("third/README.md").read_text("utf-8")


def test_the_vocabulary_of_a_model_of_characters(run: Any, caplog: Any) -> None:
    """It is not needed: one that can't be read is left out."""
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    words = "<S>\n</S>\n<UNK>\nthe\n"
    Path("elmo/vocab.txt").write_text(words, encoding="utf-8")
    export("elmo", "exported")
    assert Path("exported/vocab.txt").read_text(encoding="utf-8") == words
    Path("elmo/vocab.txt").write_text("the\n", encoding="utf-8")
    export("elmo", "without")
    assert "The export has no vocabulary: " in caplog.text
    assert not Path("without/vocab.txt").exists()


def test_float16(model: Any, run: Any) -> None:
    export("run", "float32")
    run("elmo-export run float16 --precision float16")
    exact = read_arrays("float32/weights.hdf5")
    for name, values in read_arrays("float16/weights.hdf5").items():
        assert values.dtype == "float16"
        assert np.array_equal(values, exact[name].astype("float16")), name
    layers, expected = (
        ElmoEmbedder(name).embed_sentence(["the"]) for name in ("float16", "float32")
    )
    assert layers.dtype == "float32"
    np.testing.assert_allclose(layers, expected, atol=5e-3)
    # The softmax is for training, in float32.
    assert read_arrays("float16/softmax.hdf5")["softmax/W"].dtype == "float32"
    state = torch.load("run/best.th")
    state["bilm._token_embedder.char_conv_0.bias"][0] = 1e5
    torch.save(state, "run/best.th")
    with pytest.raises(ValueError, match="CNN/b_cnn_0.*beyond those of float16"):
        export("run", "large", precision="float16")
    assert not Path("large").exists()


@pytest.mark.parametrize("n_layers, bidirectional", [(1, True), (3, True), (2, False)])
def test_other_shapes(n_layers: int, bidirectional: bool, run: Any) -> None:
    """TensorFlow drops `multi_rnn_cell` for one layer, and bilm-tf's reader does not find it."""
    width = 50 if bidirectional else 12
    lstm = {"dim": 7, "projection_dim": 5, "n_layers": n_layers, "cell_clip": 3, "proj_clip": 3}
    char_cnn = {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1}
    options = {
        "char_cnn": {**char_cnn, "max_characters_per_token": width},
        "lstm": {**lstm, "use_skip_connections": True},
        "bidirectional": bidirectional,
        "sample_softmax": False,
    }
    model = save_run(Path("run"), options).eval()
    run("elmo-export run elmo")
    written = json.loads(Path("elmo/options.json").read_text(encoding="utf-8"))
    assert written["bidirectional"] is bidirectional
    assert written["char_cnn"]["max_characters_per_token"] == width
    names = read_arrays("elmo/weights.hdf5")
    cells = {tuple(name.split("/")[i] for i in (0, 3)) for name in names if name.startswith("RNN_")}
    rnns = ["RNN_0", "RNN_1"] if bidirectional else ["RNN_0"]
    assert cells == {(rnn, f"Cell{layer}") for rnn in rnns for layer in range(n_layers)}
    ids = batch_to_ids([["characteristically", "naïve"]])
    found = Elmo("elmo", "elmo", 1, dropout=0.0)(ids)["elmo_representations"][0]
    if bidirectional:
        files = "elmo/options.json", "elmo/weights.hdf5"
        theirs = original.Elmo(*files, 1, dropout=0.0)(ids)["elmo_representations"][0]
        torch.testing.assert_close(found, theirs, atol=1e-6, rtol=1e-6)
    layers = ElmoEmbedder("elmo", initial_state="zero").embed_sentence(["no"])
    with torch.no_grad():
        bounded = batch_to_ids([["<S>", "no", "</S>"]])[:, :, :width]
        expected = model.bilm(bounded).unpack(n_layers, strip=1)[0]
    np.testing.assert_allclose(layers[n_layers], expected, atol=1e-6)


def test_models_that_are_none(run: Any, capsys: Any) -> None:
    Path("run").mkdir()
    config = {"dataset_reader": {"type": "x"}, "model": {"type": "basic_classifier"}}
    Path("run/config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save({}, "run/best.th")
    message = refused(capsys, "elmo-export", "run", "out")
    assert "type 'basic_classifier', not a bidirectional_lm" in message
    Path("text.tar.gz").write_text("text", encoding="utf-8")
    assert "text.tar.gz" in refused(capsys, "elmo-export", "text.tar.gz", "out.zip", "--zip")
    assert not Path("out").exists() and not Path("out.zip").exists()
