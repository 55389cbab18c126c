import json
import shutil
import sys
import zipfile

import h5py
import numpy as np
import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model, archive_model

from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.modules.elmo import Elmo, batch_to_ids
from tests.support.bilm_tf import REFERENCE, load_run, read_vocabulary, set_variables, variables
from tests.support.originals import elmo as original
from tests.support.testing import read_arrays, refused, write_random_elmo


@pytest.fixture
def run(tmp_path):
    """The folder of a training run with the model that bilm-tf trained, and the model."""
    options, arrays = load_run("train_charcnn")
    folder = tmp_path / "run"
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options)
    set_variables(model, arrays, "final")
    vocab.save_to_files(str(folder / "vocabulary"))
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "options": options},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), folder / "best.th")
    return folder, model


@pytest.mark.parametrize("archived", [False, True])
def test_is_what_bilm_tf_dumps(run, archived, tmp_path, capsys):
    folder, model = run
    source = folder
    if archived:
        archive_model(str(folder))
        source = folder / "model.tar.gz"
    export(str(source), tmp_path / "elmo")
    assert "8 dimensions per token" not in capsys.readouterr().out
    written, expected = (
        read_arrays(path)
        for path in (tmp_path / "elmo" / "weights.hdf5", REFERENCE / "checkpoint" / "weights.hdf5")
    )
    assert set(written) == set(expected)
    for name in expected:
        assert np.array_equal(written[name], expected[name]), name
    softmax = read_arrays(tmp_path / "elmo" / "softmax.hdf5")
    named = dict(variables(model))
    assert np.array_equal(softmax["softmax/W"], named["lm/softmax/W"])
    assert np.array_equal(softmax["softmax/b"], named["lm/softmax/b"])
    options = json.loads((tmp_path / "elmo" / "options.json").read_text(encoding="utf-8"))
    assert options["char_cnn"]["n_characters"] == 262
    assert options["n_tokens_vocab"] == 50
    words = read_vocabulary_file(REFERENCE / "data" / "vocab.txt")
    assert read_vocabulary_file(tmp_path / "elmo" / "vocab.txt") == words
    vocab = Vocabulary.from_files(str(tmp_path / "elmo" / "vocabulary"))
    assert [vocab.get_token_from_index(i, "lm_tokens") for i in range(50)] == words


def test_allennlps_elmo_and_ours_read_it_to_the_same_numbers(run, tmp_path):
    export(str(run[0]), tmp_path / "elmo")
    files = [str(tmp_path / "elmo" / name) for name in ("options.json", "weights.hdf5")]
    ids = batch_to_ids([["the", "naïve", "東京"], ["no"]])
    ours, theirs = (
        cls(*files, 1, dropout=0.0)(ids)["elmo_representations"][0] for cls in (Elmo, original.Elmo)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    # And the exported layers are those of the model that was trained.
    model = run[1].eval()
    bounded = batch_to_ids([["<S>", "no", "</S>"]])
    with torch.no_grad():
        expected = model.bilm(bounded).unpack(2, strip=1)[0]
        exported = original._ElmoBiLm(*files)(batch_to_ids([["no"]]))["activations"][2][0, 1:2]
    torch.testing.assert_close(exported, expected, atol=1e-6, rtol=1e-6)


def test_command(run, tmp_path, monkeypatch, capsys):
    arguments = ["allennlp", "elmo-export", str(run[0]), str(tmp_path / "elmo")]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    names = {"options.json", "weights.hdf5", "softmax.hdf5", "vocab.txt", "vocabulary", "README.md"}
    assert {path.name for path in (tmp_path / "elmo").iterdir()} == names
    capsys.readouterr()
    assert "elmo is not empty; choose another output, or --force" in refused(capsys, *arguments[1:])
    (tmp_path / "elmo" / "notes.txt").write_text("mine")
    (tmp_path / "elmo" / "options.json").write_text("old")
    (tmp_path / "elmo" / "README.md").write_text("completed by its author")
    monkeypatch.setattr(sys, "argv", [*arguments, "--force"])
    main()
    assert {path.name for path in (tmp_path / "elmo").iterdir()} == {*names, "notes.txt"}
    assert (tmp_path / "elmo" / "options.json").read_text() != "old"
    assert (tmp_path / "elmo" / "README.md").read_text() == "completed by its author"
    assert "README.md that was there stays" in capsys.readouterr().out


METRICS = {
    "best_epoch": 3,
    "training_duration": "0:01:00",
    "training_perplexity": 50.04,
    "training_forward_perplexity": 51.0,
    "training_backward_perplexity": 49.0,
    "best_validation_perplexity": 120.56,
    "best_validation_forward_perplexity": 121.0,
    "best_validation_backward_perplexity": 120.1,
}


class TestZip:
    def test_layout_of_nlpl(self, run, tmp_path, monkeypatch, capsys):
        arguments = ["elmo-export", str(run[0]), str(tmp_path / "elmo.zip"), "--zip"]
        assert "elmo.zip: without --zip the output is a folder" in refused(capsys, *arguments[:-1])
        assert not (tmp_path / "elmo.zip").exists()
        monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
        main()
        assert "model.hdf5 (2 layers, both directions" in capsys.readouterr().out
        with zipfile.ZipFile(tmp_path / "elmo.zip") as archive:
            names = ["options.json", "model.hdf5", "vocab.txt", "README.md"]
            assert archive.namelist() == names
            # What simple_elmo reads them by.
            options = json.loads(archive.read("options.json"))
            assert options["char_cnn"]["n_characters"] == 262
            assert archive.read("vocab.txt").decode("utf-8").startswith("<S>\n</S>\n<UNK>\n")
            with h5py.File(archive.open("model.hdf5")) as file:
                assert file["char_embed"].shape[0] == 261
        export(str(run[0]), tmp_path / "elmo")
        sentence = ["the", "naïve", "東京"]
        first, second = (
            ElmoEmbedder(str(tmp_path / name)).embed_sentence(sentence)
            for name in ("elmo", "elmo.zip")
        )
        assert np.array_equal(first, second)
        # The same model is the same file; an earlier one is replaced only if asked for.
        content = (tmp_path / "elmo.zip").read_bytes()
        capsys.readouterr()
        assert "elmo.zip exists; choose another output, or --force" in refused(capsys, *arguments)
        export(str(run[0]), tmp_path / "elmo.zip", force=True, zipped=True)
        assert (tmp_path / "elmo.zip").read_bytes() == content
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            *("elmo", "elmo.zip", "run", "vocabulary")
        ]

    def test_of_another_layout(self, run, tmp_path):
        """A published model, without softmax and vocabulary."""
        export(str(run[0]), tmp_path / "elmo")
        for name in ("softmax.hdf5", "vocab.txt", "README.md"):
            (tmp_path / "elmo" / name).unlink()
        shutil.rmtree(tmp_path / "elmo" / "vocabulary")
        options = json.loads((tmp_path / "elmo" / "options.json").read_text("utf-8"))
        del options["n_tokens_vocab"]
        (tmp_path / "elmo" / "options.json").write_text(json.dumps(options), encoding="utf-8")
        export(str(tmp_path / "elmo"), tmp_path / "elmo.zip", zipped=True)
        with zipfile.ZipFile(tmp_path / "elmo.zip") as archive:
            assert archive.namelist() == ["options.json", "model.hdf5", "README.md"]
            assert "| Vocabulary | none in the files |" in archive.read("README.md").decode()

    def test_no_model(self, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(ConfigurationError, match="not that of a training run"):
            export(str(tmp_path / "empty"), tmp_path / "elmo.zip", zipped=True)
        assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("archived", [False, True])
def test_model_card(run, archived, tmp_path):
    folder, model = run
    (folder / "metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["train_data_path"] = "/home/me/text"
    config["dataset_reader"]["files"] = ["/home/me/a.txt"]
    config["trainer"] = {"num_epochs": 3}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    source = folder
    if archived:
        archive_model(str(folder))
        source = folder / "model.tar.gz"
    export(str(source), tmp_path / "elmo", precision="float16")
    card = (tmp_path / "elmo" / "README.md").read_text(encoding="utf-8")
    n_parameters = sum(each.size for each in read_arrays(tmp_path / "elmo/weights.hdf5").values())
    size = (tmp_path / "elmo" / "weights.hdf5").stat().st_size / 1e6
    for row in (
        "| LSTM layers | 2, in both directions |",
        f"| Cells of a layer and direction | {model.options.lstm_dim} |",
        f"| Dimensions per token in each layer | {model.bilm.get_output_dim()} |",
        f"| Parameters | {n_parameters:,} without the softmax |",
        f"| Size of the weights | {size:.1f} MB |",
        "| Weights | weights.hdf5, float16 |",
        "| Vocabulary | 50 words, which the softmax knew in training |",
        "| training, last epoch | 50.0 | 51.0 | 49.0 |",
        "| validation | 120.6 | 121.0 | 120.1 |",
        "- Licence: (to be filled in by the author)",
        'ElmoEmbedder("elmo")',
        '"num_epochs": 3',
        '"a.txt"',
    ):
        assert row in card
    assert "home" not in card and card.count("```") == 6


@pytest.mark.parametrize("zipped", [False, True])
def test_the_card_of_a_published_model_is_kept(run, zipped, tmp_path):
    """It has the licence."""
    export(str(run[0]), tmp_path / "first")
    card = "# Mine\n\n## Licence\n\nfree\n"
    (tmp_path / "first" / "README.md").write_text(card, encoding="utf-8")
    source = tmp_path / "first"
    if zipped:
        source = shutil.make_archive(str(source), "zip", source)
    export(str(source), tmp_path / "second.zip", zipped=True)
    with zipfile.ZipFile(tmp_path / "second.zip") as archive:
        assert archive.read("README.md").decode("utf-8") == card


def test_the_card_of_a_run_that_diverged(run, tmp_path):
    (run[0] / "metrics.json").write_text('{"best_validation_perplexity": NaN}')
    export(str(run[0]), tmp_path / "elmo")
    assert "have no metrics.json" in (tmp_path / "elmo" / "README.md").read_text()


def test_a_model_without_softmax_keeps_its_vocabulary(tmp_path, caplog):
    folder = tmp_path / "elmo"
    folder.mkdir()
    write_random_elmo(folder)
    words = "<S>\n</S>\n<UNK>\nthe\n"
    (folder / "vocab.txt").write_text(words)
    export(str(folder), tmp_path / "elmo.zip", zipped=True)
    export(str(tmp_path / "elmo.zip"), folder, force=True)
    assert (folder / "vocab.txt").read_text() == words
    assert "| Vocabulary | 4 words |" in (folder / "README.md").read_text()
    # One that others wrote is no reason to refuse the model.
    (folder / "vocab.txt").write_text("the\n")
    export(str(folder), tmp_path / "other")
    assert "special words <S>, </S>, <UNK> are missing" in caplog.text
    assert not (tmp_path / "other" / "vocab.txt").exists()


def test_float16(run, tmp_path):
    for precision in ("float32", "float16"):
        export(str(run[0]), tmp_path / precision, precision=precision)
    exact, rounded = (
        read_arrays(tmp_path / precision / "weights.hdf5") for precision in ("float32", "float16")
    )
    for name, values in rounded.items():
        assert values.dtype == "float16"
        assert np.array_equal(values, exact[name].astype("float16")), name
    elmo = Elmo(str(tmp_path / "float16"))
    assert {parameter.dtype for parameter in elmo.parameters()} == {torch.float32}
    layers, expected = (
        ElmoEmbedder(str(tmp_path / precision)).embed_sentence(["the", "naïve"])
        for precision in ("float16", "float32")
    )
    assert layers.dtype == "float32"
    np.testing.assert_allclose(layers, expected, atol=5e-3)
    # The softmax is for training, in float32.
    assert read_arrays(tmp_path / "float16" / "softmax.hdf5")["softmax/W"].dtype == "float32"
    state = torch.load(run[0] / "best.th")
    state["bilm._token_embedder.char_conv_0.bias"][0] = 1e5
    torch.save(state, run[0] / "best.th")
    with pytest.raises(ConfigurationError, match="CNN/b_cnn_0.*beyond those of float16"):
        export(str(run[0]), tmp_path / "large", precision="float16")
    assert not (tmp_path / "large").exists()


class TestBadInput:
    def test_no_archive(self, tmp_path):
        with pytest.raises(ConfigurationError, match="model .*nothing': there is no"):
            export(str(tmp_path / "nothing"), tmp_path / "elmo")
        (tmp_path / "empty").mkdir()
        with pytest.raises(ConfigurationError, match="not that of a training run"):
            export(str(tmp_path / "empty"), tmp_path / "elmo")
        (tmp_path / "text.tar.gz").write_text("text")
        with pytest.raises(ConfigurationError, match="text.tar.gz"):
            export(str(tmp_path / "text.tar.gz"), tmp_path / "elmo")
        assert not (tmp_path / "elmo").exists()

    def test_another_model(self, run, tmp_path):
        folder, _ = run
        config = {
            "dataset_reader": {"type": "sequence_tagging"},
            "model": {
                "type": "basic_classifier",
                "text_field_embedder": {
                    "token_embedders": {
                        "tokens": {"type": "embedding", "embedding_dim": 2, "num_embeddings": 3}
                    }
                },
                "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 2},
                "num_labels": 2,
            },
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        model = Model.from_params(
            Params(dict(config["model"])), vocab=Vocabulary.from_files(str(folder / "vocabulary"))
        )
        torch.save(model.state_dict(), folder / "best.th")
        with pytest.raises(
            ConfigurationError, match="type 'basic_classifier'; only a bidirectional"
        ):
            export(str(folder), tmp_path / "elmo")
        assert not (tmp_path / "elmo").exists()

    def test_output_is_a_file(self, run, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="is a file, not a folder"):
            export(str(run[0]), tmp_path / "file")


def _export_trained(tmp_path, options):
    """Exports a model with some structure in it; its files, and the model."""
    torch.manual_seed(0)
    vocab = read_vocabulary(tmp_path / "run" / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=options)
    config = {
        "dataset_reader": {"type": "truncated_bptt_lm", "batch_size": 4},
        "model": {"type": "bidirectional_lm", "options": options},
    }
    (tmp_path / "run" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.save(model.state_dict(), tmp_path / "run" / "best.th")
    export(str(tmp_path / "run"), tmp_path / "elmo")
    return [str(tmp_path / "elmo" / name) for name in ("options.json", "weights.hdf5")], model


OPTIONS = {
    "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1},
    "lstm": {"dim": 7, "projection_dim": 5, "n_layers": 1, "cell_clip": 3, "proj_clip": 3},
    "sample_softmax": False,
}


@pytest.mark.parametrize("n_layers", [1, 3])
def test_other_numbers_of_layers_have_the_names_that_readers_find(n_layers, tmp_path):
    """TensorFlow drops `multi_rnn_cell` for one layer, and bilm-tf's reader does not find it."""
    lstm = {**OPTIONS["lstm"], "n_layers": n_layers, "use_skip_connections": True}
    files, _ = _export_trained(tmp_path, {**OPTIONS, "lstm": lstm})
    cells = {name.split("/")[3] for name in read_arrays(files[1]) if name.startswith("RNN_")}
    assert cells == {f"Cell{layer}" for layer in range(n_layers)}
    assert f"RNN_1/RNN/MultiRNNCell/Cell{n_layers - 1}/LSTMCell/W_P_0" in read_arrays(files[1])
    ids = batch_to_ids([["the", "naïve", "東京"], ["no"]])
    ours, theirs = (
        cls(*files, 1, dropout=0.0)(ids)["elmo_representations"][0] for cls in (Elmo, original.Elmo)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("max_characters", [50, 12])
def test_forward_only(max_characters, tmp_path):
    char_cnn = {**OPTIONS["char_cnn"], "max_characters_per_token": max_characters}
    files, model = _export_trained(
        tmp_path, {**OPTIONS, "char_cnn": char_cnn, "bidirectional": False}
    )
    written = json.loads((tmp_path / "elmo" / "options.json").read_text(encoding="utf-8"))
    assert written["bidirectional"] is False
    assert written["char_cnn"]["max_characters_per_token"] == max_characters
    assert not any(name.startswith("RNN_1") for name in read_arrays(files[1]))
    sentence = ["the", "characteristically", "naïve"]
    found = Elmo(*files, 1, dropout=0.0)(batch_to_ids([sentence]))["elmo_representations"][0]
    layers = ElmoEmbedder(*files, initial_state="carried").embed_sentence(sentence)
    assert layers.shape == (2, 3, 5)
    np.testing.assert_allclose(found[0].detach(), layers.mean(0), atol=1e-6)
    bounded = torch.from_numpy(
        sentences_to_character_ids([["<S>", *sentence, "</S>"]], CharacterTable(max_characters))
    )
    with torch.no_grad():
        expected = model.eval().bilm(bounded).unpack(1, strip=1)[0]
    np.testing.assert_allclose(layers[1], expected, atol=1e-6)


def test_a_training_run_keeps_its_vocabulary(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run = tmp_path / "run"
    (run / "vocabulary").mkdir(parents=True)
    for name in ("config.json", "model_state_e1_b0.th", "vocabulary/lm_tokens.txt"):
        (run / name).write_text(name, encoding="utf-8")
    before = sorted(run.rglob("*"))
    for output in (run, "~/run"):
        message = refused(capsys, "elmo-export", "tiny", output, "--force")
        assert f"{run} is the folder of a training run" in message
    assert sorted(run.rglob("*")) == before
